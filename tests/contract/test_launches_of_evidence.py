"""A measured best is told stale by its kernel's text alone, so what else decides a launch changes with that text only.

Constants of a build are derived by rules; some of its text, and arguments of a launch, are made by Python: pinned here
beside the text.
`python -m tests.contract.test_launches_of_evidence` pins them anew.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

import pytest

from space.devices import reference_profile
from space.family import family_named
from tests.integration.workers.launches import CASES, H200
from workers.cuda.plans import plan_of
from workers.kernels.source import source_of_family

PINS: Final = Path(__file__).resolve().parents[1] / "data" / "launches.json"
#: With dependent launches, and without.
ARCHES: Final = frozenset({"sm_80", "sm_90a"})


def today() -> dict[str, dict[str, str]]:
    """Of each family: the digest of its text, that of the constants and arguments of its cases, and that of their
    programs, which the digest of the text has without what is generated for each."""
    said, programs = dict[str, list[str]](), dict[str, list[str]]()
    for problem, name, knobs in CASES:
        family, config = family_named(name), family_named(name).config(knobs)  # type: ignore[arg-type]
        constants = family.compile_constants(problem, config, reference_profile("sm_90a"))
        said.setdefault(name, []).extend((repr(sorted(constants.items())), plan_of(problem, config, "", H200)))
        for arch in ARCHES & (family.targets | family.fallbacks):
            of_arch = family.compile_constants(problem, config, reference_profile(arch))
            programs.setdefault(name, []).append(f"{arch} {source_of_family(family).render(of_arch)}")
    return {
        name: {
            "text": source_of_family(family_named(name)).digest, "launches": digest_of(lines),
            "programs": digest_of(sorted(programs[name])),
        }
        for name, lines in said.items()
    }  # fmt: skip


def digest_of(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_launches_change_with_their_kernels_text_alone() -> None:
    pinned = json.loads(PINS.read_text())
    for name, now in today().items():
        then = pinned[name]
        decides = [now[what] for what in ("launches", "programs")]
        assert decides == [then[what] for what in ("launches", "programs")] or now["text"] != then["text"], (
            f"{name}: constants, generated text or arguments of a launch changed, and its text did not: bests that "
            "were measured with the old ones would still count as measured. Change a comment of the kernel too, then "
            "pin both anew"
        )
        assert {**then, **now} == then, f"{name}: the kernel's text changed: pin it anew, as this module says"


@pytest.mark.parametrize("name", today())
def test_a_text_that_is_called_alike_had_the_launches_of_today(name: str) -> None:
    alike = json.loads(PINS.read_text())[name]["alike"]
    assert set(alike) == set(source_of_family(family_named(name)).alike)
    assert set(alike.values()) <= {today()[name]["launches"]}, (
        f"{name}: what was measured with an earlier text is launched in another way now: take the text out of `alike`"
    )


def pins() -> dict[str, dict[str, object]]:
    """What stands for the next versions: today's digests, and the launches of earlier texts that are called alike."""
    pinned = json.loads(PINS.read_text())
    said = dict[str, dict[str, object]]()
    for name, now in today().items():
        then, alike = pinned[name], source_of_family(family_named(name)).alike
        said[name] = {**now, "alike": {one: then["alike"].get(one, then["launches"]) for one in alike}}
    return said


if __name__ == "__main__":
    PINS.write_text(json.dumps(pins(), indent=2) + "\n")
