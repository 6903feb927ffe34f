"""KernelSource: the source that a family, or one of our tools, plugs into the compiler.

A family's kernel module (`Family.kernel`, such as `workers.kernels.gemv`) exports its source as `SOURCE`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Final

from space.errors import FamilyError
from space.knobs import KnobValue
from space.plug import Family
from space.problem import Problem
from workers.kernels.flatten import FOLDER, flattened

#: What a kernel's `Config` struct holds, by name (`Family.compile_constants`).
Constants = Mapping[str, KnobValue]

#: Texts around `Config` that are kept, of 80 KB each: one per generated text, and most problems have a dozen or two.
_KEPT_TEXTS: Final = 64
#: Digests that are kept: one for each entry of each source.
_KEPT_DIGESTS: Final = 64
#: Stands for generated texts in a digest.
_GENERATED: Final = "// generated for each config"


@dataclass(frozen=True, eq=False)
class KernelSource:
    """One kernel's source: files, and how a candidate's constants enter them.

    Attributes:
        entry: file that defines the entry points; it may name `Config`, the files that it includes may not.
        root: folder against which `entry` and includes resolve first, before `workers/kernels`.
        enumerators: C++ enum by constant, for constants whose values are words: `epilogue` = `tma` becomes
            `Epilogue::kTma`.
        not_members: constants that only choose text and stay out of `Config`.
        other_entries: file by constant, in place of `entry` where the constant is given; programs of `entry` and their
            digest don't depend on it.
        variants: file by constant, in place of `entry` where the constant is not 0; part of every digest.
        extra_entries: file by constant, added behind the entry where the constant is not 0.
        generate: texts of included files that depend on the constants, by name.
        alike: digests of earlier texts, of `entry` and of other entries, that compile to today's cubin with every
            config that they had (`benchmarks.machine_code`): what was measured with them stays measured.
    """

    entry: str
    root: Path = FOLDER
    enumerators: Mapping[str, str] = field(default_factory=dict)
    not_members: frozenset[str] = frozenset()
    other_entries: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)
    extra_entries: Mapping[str, str] = field(default_factory=dict)
    generate: Callable[[Constants], Mapping[str, str]] = lambda constants: {}
    alike: tuple[str, ...] = ()

    def render(self, constants: Constants | None = None) -> str:
        """One self-contained translation unit; a function of its arguments alone, since builds are addressed by it.

        Args:
            constants: compile knobs and derived values by name: `tile_m` becomes `Config::kTileM`. None for a source
                without `Config`.
        """
        if constants is None:
            return "".join(self._around_config(self.entry, (), ()))
        extra = tuple(file for name, file in self.extra_entries.items() if constants.get(name))
        variant = next((file for name, file in self.variants.items() if constants.get(name)), "")
        entry = variant or self._entry_of(constants)
        before, after = self._around_config(entry, tuple(self.generate(constants).items()), extra)
        return "".join([before, *(f"{line}\n" for line in self._config(constants)), after])

    @cached_property
    def digest(self) -> str:
        """Digest of the text of all files of `entry`, without constants and without generated texts."""
        return self._digest_of(self.entry)

    def digest_for(self, constants: Iterable[str]) -> str:
        """The digest of the programs in which some constants are given; few of them choose another entry."""
        return self._digest_of(self._entry_of(constants))

    def _entry_of(self, constants: Iterable[str]) -> str:
        return next((self.other_entries[name] for name in constants if name in self.other_entries), self.entry)

    @lru_cache(maxsize=_KEPT_DIGESTS)  # noqa: B019  (sources live as long as the process)
    def _digest_of(self, entry: str) -> str:
        seen: set[str] = set()
        files = [entry, *self.variants.values(), *self.extra_entries.values()]
        lines = (line for file in files for line in flattened(file, {}, self.root, seen, _GENERATED))
        text = "\n".join(lines)
        return hashlib.sha256(text.encode()).hexdigest()

    @lru_cache(maxsize=_KEPT_TEXTS)  # noqa: B019  (sources live as long as the process)
    def _around_config(
        self, entry: str, generated: tuple[tuple[str, str], ...], extra: tuple[str, ...]
    ) -> tuple[str, str]:
        """The text before and after `Config`: most candidates of a problem share it with others."""
        seen: set[str] = set()
        body = list(flattened(entry, dict(generated), self.root, seen))
        # Config names enums of the included files and is named by the entry: it stands after the last include.
        after_includes = max(place for place, line in enumerate(body) if line.endswith(f'"{entry}"'))
        added = (line for file in extra for line in flattened(file, {}, self.root, seen))
        before, after = body[:after_includes], [*body[after_includes:], *added]
        return "".join(f"{line}\n" for line in before), "".join(f"{line}\n" for line in after)

    def _config(self, constants: Constants) -> list[str]:
        lines = ['#line 1 "Config"', "struct Config {"]
        for name, value in constants.items():
            if name in self.not_members:
                continue
            member = f"k{_camel(name)}"
            if isinstance(value, str):
                kind = self.enumerators[name]
                lines.append(f"    static constexpr {kind} {member} = {kind}::k{_camel(value)};")
            else:
                lines.append(f"    static constexpr int {member} = {int(value)};")
        return [*lines, "};"]


@cache
def source_of_family(family: Family) -> KernelSource:
    """The kernel source that a family's module exports.

    Raises:
        FamilyError: the family has no kernel of ours.
    """
    if not family.own:
        raise FamilyError(f"family {family.name} has no kernel of ours: its candidates are launched, not compiled")
    module = family.kernel
    found = import_module(module).SOURCE
    assert isinstance(found, KernelSource), f"{module}.SOURCE"
    return found


def sources_digest(families: Iterable[Family], problem: Problem | None = None) -> str:
    """Digest of all sources that one problem's candidates are made of; of a single family, its own.

    Args:
        problem: one that the families take; None for those that choose no other entry.
    """
    return _joined({family.name: _digest_for(family, problem) for family in families})


def digests_alike(families: Sequence[Family], earlier: bool = True) -> Iterator[str]:
    """Each `sources_digest` that the families have, today and with earlier texts of the same machine code.

    Args:
        earlier: whether the latter are wanted.
    """
    sources = [source_of_family(family) for family in families]
    texts = (
        (each.digest, *(each.digest_for([name]) for name in each.other_entries), *(each.alike if earlier else ()))
        for each in sources
    )
    for chosen in product(*texts):
        yield _joined(dict(zip((family.name for family in families), chosen, strict=True)))


def _joined(digests: Mapping[str, str]) -> str:
    """One digest of the sources of some families, by name; of a single one, its own."""
    if len(digests) == 1:
        return next(iter(digests.values()))
    text = "\n".join(f"{family} {digest}" for family, digest in sorted(digests.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _digest_for(family: Family, problem: Problem | None) -> str:
    source = source_of_family(family)
    if problem is None or not source.other_entries or problem.kind not in family.kinds:
        return source.digest
    return source.digest_for(family.problem_constants(problem, family.config({})))


def _camel(name: str) -> str:
    return "".join(part[0].upper() + part[1:] for part in name.split("_"))
