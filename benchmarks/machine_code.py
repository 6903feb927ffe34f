"""Whether an earlier text of a family's kernels compiles to today's machine code.

python -m benchmarks.machine_code 46ef8b22 recorded/h200_again recorded/h100_wide --out benchmarks/results/F.md

Reads the kernels of a commit, draws programs of recordings that were measured with them, and compiles both texts of
each for the recorded GPU. The earlier text has to be the one that was measured: its build digest, of the text, the arch
and the NVRTC of then, is the recording's.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.command import WrongInput, as_command, positive
from benchmarks.published import ROOT, add_out, publish
from space.config import Config
from space.devices import profile_named, reference_profile
from space.family import family_named
from space.problem import Problem
from workers.build import Build, compile_source, digest_of, nvrtc_version
from workers.builder import source_of
from workers.kernels.source import Constants, KernelSource, source_of_family
from workers.measurement import Outcome
from workers.recording import read_recording

#: Programs that are compiled, unless more or fewer are asked for.
PROGRAMS: Final = 1500
_KERNELS: Final = "workers/kernels"


class Drawn(NamedTuple):
    """A measured program."""

    problem: Problem
    config: Config
    arch: str
    nvrtc: str
    build: str


@dataclass(frozen=True, slots=True)
class Compared:
    """A program's text of then and of today.

    Attributes:
        measured: the earlier text is the one that was measured.
        same_text: nothing was to be compared.
        same_code: both compile to one cubin.
    """

    measured: bool
    same_text: bool
    same_code: bool


def main() -> int:
    """Prints how many programs are alike; 1 where some are not."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("commit", help="with the earlier text")
    options.add_argument("recordings", nargs="+", type=Path)
    options.add_argument("--family", default="sm90_wgmma")
    options.add_argument("--programs", type=positive, default=PROGRAMS)
    add_out(options)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        earlier = source_at(given.commit, given.family, Path(folder))
        every = list(programs_of(given.recordings, given.family))
        drawn = random.Random(0).sample(every, min(given.programs, len(every)))
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(partial(compared, root=earlier.root), drawn, chunksize=8))
        text = "\n".join(table(given.family, earlier, len(every), drawn, found))
    print(text)
    publish("machine_code", given.out, text, read=given.recordings)
    return 0 if all(one.same_code and one.measured for one in found) else 1


def table(
    family: str, earlier: KernelSource, every: int, drawn: Sequence[Drawn], found: Sequence[Compared]
) -> Iterator[str]:
    """Counts, and the programs that differ."""
    today = source_of_family(family_named(family))
    epilogues = Counter(str(one.config.knobs.get("epilogue", "")) for one in drawn)
    yield from ("| what | |", "| --- | --- |")
    yield f"| NVRTC that compiled both | {nvrtc_version()} |"
    yield f"| text of then, text of today | `{earlier.digest[:12]}`, `{today.digest[:12]}` |"
    yield f"| programs of {family} in the recordings | {every:,} |"
    yield f"| drawn at random | {len(drawn):,}: {', '.join(f'{n:,} {name}' for name, n in epilogues.most_common())} |"
    yield f"| whose text of then is the one that was measured | {sum(one.measured for one in found):,} |"
    yield f"| whose text has changed | {sum(not one.same_text for one in found):,} |"
    yield f"| whose cubin is the same | {sum(one.same_code for one in found):,} |"
    for one, how in zip(drawn, found, strict=True):
        if not (how.same_code and how.measured):
            yield f"| differs | {one.problem.key} {one.config.key} |"


def source_at(commit: str, family: str, folder: Path) -> KernelSource:
    """A family's kernel source as of a commit, whose files are written to `folder`.

    Raises:
        WrongInput: there is no such commit, or it has no kernels.
    """
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit, _KERNELS]
    packed = subprocess.run(command, check=False, capture_output=True)
    if packed.returncode:
        said = packed.stderr.decode(errors="replace").strip()
        raise WrongInput(f"no kernels are known of {commit!r} ({said}): name a commit of this repository")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")
    return _source_in(folder / _KERNELS, family)


def programs_of(folders: Sequence[Path], family: str) -> Iterator[Drawn]:
    """Each correct program of the recordings once, in the order of their names.

    Raises:
        WrongInput: there is none, of which nothing could be said.
    """
    seen = set[str]()
    for path in sorted(path for folder in folders for path in folder.glob("*.parquet")):
        recording = read_recording(path)
        arch = profile_named(recording.facts.name).arch.name
        for one, by in recording.measurements:
            if one.config.family == family and one.outcome is Outcome.CORRECT and one.build_digest not in seen:
                seen.add(one.build_digest)
                yield Drawn(recording.problem, one.config, arch, by.nvrtc, one.build_digest)
    if not seen:
        raise WrongInput(f"no program of {family} is in {', '.join(map(str, folders))}: give folders of recordings")


def compared(one: Drawn, root: Path) -> Compared:
    """Compiles both texts of a program; `root` has the earlier one."""
    then = _source_in(root, one.config.family).render(constants_of(one.problem, one.config, one.arch))
    now = source_of(one.problem, one.config, one.arch)
    measured = digest_of(then, one.arch, one.nvrtc) == one.build
    if then == now:
        return Compared(measured, True, True)
    builds = [compile_source(text, one.arch, None) for text in (then, now)]
    cubins = {each.cubin for each in builds if isinstance(each, Build)}
    return Compared(measured, False, len(cubins) == 1 and all(isinstance(each, Build) for each in builds))


def constants_of(problem: Problem, config: Config, arch: str) -> Constants:
    """The constants of a program's `Config`."""
    return family_named(config.family).compile_constants(problem, config, reference_profile(arch))


@cache
def _source_in(root: Path, family: str) -> KernelSource:
    return replace(source_of_family(family_named(family)), root=root)


if __name__ == "__main__":
    as_command(main)
