"""Checks of workers' reports: nothing of a report is stored unless all of it passes.

The checks cover sizes, names, legality of every config by the rules that enumerate it, verification over every
element, and times that no kernel could reach. The schema is checked where a report is parsed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from space.config import Config
from space.devices import DeviceProfile, find_profile
from space.errors import SpaceError
from space.explain import explain, legal_mask
from space.family import config_named, families_for, family_named
from space.plug import Family
from space.problem import Problem
from tuner.errors import ResultRefused
from tuner.evidence.physics import impossible
from tuner.evidence.picks import LIBRARY
from tuner.studying.records import MOST_TURNS
from workers.measurement import DeviceFacts, Measurement, Outcome, Policy, Provenance, Stage

#: Most measurements per report, samples per measurement, characters per text.
MOST_MEASUREMENTS: Final = 2_000
MOST_SAMPLES: Final = 3 * MOST_TURNS
MOST_TEXT: Final = 4_000
#: Rivals of one round's finals, and samples of each for every turn of the budget: turns are repeated until intervals
#: are narrow, three times as many at most. Bursts and blocks are fewer; those of older workers were up to eight.
MOST_RIVALS: Final = 64
SAMPLES_OF_A_TURN, FEW_SAMPLES = 3, 30
#: Workers name the same few configs repeatedly: in announcements and reports of every problem.
_KNOWN_CONFIGS: Final = 4_000
_DIGEST: Final = re.compile(r"[0-9a-f]{0,64}")


def config_from_key(key: str) -> Config:
    """The config with a key that a worker reports.

    Raises:
        ResultRefused: it names none.
    """
    try:
        return config_named(key)
    except SpaceError as error:
        raise ResultRefused(f"{key[:200]!r} is not a config: {error}") from error


def check_legal(problem: Problem, device: DeviceProfile, configs: Sequence[Config], stage: Stage) -> None:
    """Checks that every config belongs to a family of the arch, or in finals to the library, and is legal.

    Raises:
        ResultRefused: a config breaks a rule, which is named.
    """
    families = {family.name: family for family in families_for(device.arch.name)}
    foreign = [config for config in configs if config.family not in families]
    if foreign and (stage == "screen" or any(config.family != LIBRARY for config in foreign)):
        one, tried = foreign[0], ", ".join(families)
        raise ResultRefused(f"{one.key} is of family {one.family}: those of {device.arch.name} are {tried}")
    for own in families.values():
        _check_legal_of(own, problem, device, [config for config in configs if config.family == own.name])


def _check_legal_of(own: Family, problem: Problem, device: DeviceProfile, configs: Sequence[Config]) -> None:
    if not configs:
        return
    if misfit := next(filter(None, map(_misfit, configs)), ""):
        raise ResultRefused(misfit)
    legal = legal_mask(own, own.columns(problem, configs, device))
    if not legal.all():
        first = configs[int(legal.argmin())]
        broken = explain(own, problem, first, device).broken[0]
        raise ResultRefused(f"{first.key} is illegal for {problem.shape}: {broken.rule} ({broken.numbers})")


def check_provenance(provenance: Provenance, facts: DeviceFacts) -> None:
    """Checks that the provenance names the worker's own device.

    Raises:
        ResultRefused: it names another.
    """
    if provenance.device != facts.name:
        raise ResultRefused(f"the measurements are of {provenance.device!r}, the worker registered {facts.name!r}")
    if facts.kind == "cuda" and provenance.device_uuid != facts.uuid:
        raise ResultRefused(f"the measurements are of GPU {provenance.device_uuid}, the worker registered {facts.uuid}")
    if any(len(value) > 200 for value in (provenance.driver, provenance.nvrtc, provenance.cublaslt)):
        raise ResultRefused("a version in the provenance is longer than 200 characters")
    if not 0 <= provenance.rotation_bytes < 2**63:
        raise ResultRefused(f"operands that rotate through {provenance.rotation_bytes} bytes: give 0 to 2^63 - 1")
    if not (_DIGEST.fullmatch(provenance.kernel_source_digest) and -(2**63) <= provenance.seed < 2**63):
        raise ResultRefused("the provenance names no kernel source digest, or a seed beyond 64 bits")


def check_finals(measurements: Sequence[Measurement], facts: DeviceFacts, turns: int) -> None:
    """Checks that a round can have produced the finals: deciding them takes time and memory for every sample.

    Args:
        turns: fewest turns of the finals, by the round's budget. Recorded finals have the turns of their recording.

    Raises:
        ResultRefused: there are more of them, or of samples.
    """
    most = MOST_SAMPLES if facts.kind == "recorded" else max(SAMPLES_OF_A_TURN * turns, FEW_SAMPLES)
    finals = [one for one in measurements if one.stage == "final"]
    for policy, count in Counter(one.policy for one in finals).items():
        if count > MOST_RIVALS:
            raise ResultRefused(f"{count} finals under {policy}: a round has at most {MOST_RIVALS} rivals")
    for one in finals:
        if (count := len(one.samples_us)) > most:
            raise ResultRefused(
                f"{one.config.key}: {count:,} samples under {one.policy}: finals of {turns} turns take at most "
                f"{most:,}; report what the round took"
            )


def check_measurements(measurements: Sequence[Measurement], problem: Problem, facts: DeviceFacts) -> None:
    """Checks all of a report's measurements.

    Raises:
        ResultRefused: a measurement breaks a rule, which is named.
    """
    if len(measurements) > MOST_MEASUREMENTS:
        raise ResultRefused(f"{len(measurements)} measurements in one report: at most {MOST_MEASUREMENTS}")
    for stage in ("screen", "final"):
        of_stage = [(one.config, one.policy) for one in measurements if one.stage == stage]
        if len(set(of_stage)) != len(of_stage):
            raise ResultRefused(f"a config is reported twice in stage {stage}: a round measures it once under a policy")
        configs = [*dict.fromkeys(config for config, _ in of_stage)]
        check_legal(problem, facts.profile, configs, "screen" if stage == "screen" else "final")
    screening = facts.screens_under
    # Not the worker's own figures where the card is known: fewer multiprocessors would make any time possible.
    profile = find_profile(facts.name) or facts.profile
    for measurement in measurements:
        if wrong := _wrong(measurement, problem, screening, profile):
            raise ResultRefused(f"{measurement.config.key}: {wrong}")


def _wrong(measurement: Measurement, problem: Problem, screening: Policy, profile: DeviceProfile) -> str:
    """The rule that one measurement breaks; empty for none.

    Args:
        screening: policy of the device's screenings.
    """
    samples, check = measurement.samples_us, measurement.verification
    if measurement.problem_key != problem.key:
        return f"it is of {measurement.problem_key[:200]}, the round is of {problem.key}"
    if measurement.stage == "screen" and measurement.policy is not screening:
        return f"it was screened under {measurement.policy}, this device screens under {screening}: upgrade the worker"
    if measurement.product_joules is not None and not 0 < measurement.product_joules < math.inf:
        return f"product_joules = {measurement.product_joules}: energy is a positive number"
    if len(samples) > MOST_SAMPLES or not _all_positive(samples):
        return f"samples must be at most {MOST_SAMPLES} positive numbers of microseconds"
    if max(len(measurement.detail), len(measurement.note)) > MOST_TEXT:
        return f"a text is longer than {MOST_TEXT} characters"
    if not _DIGEST.fullmatch(measurement.build_digest):
        return f"build_digest {measurement.build_digest[:80]!r} is no SHA-256 in hexadecimal"
    if measurement.clocks and len(measurement.clocks.throttle_reasons) > 20:
        return "more than 20 throttle reasons"
    if check and not (0 <= check.mismatches <= check.elements and len(check.reference) <= 200):
        return "its verification counts more mismatches than elements, or its reference is longer than 200 characters"
    # Also false for NaN. A worker that met one reports infinity.
    if check and not check.worst_ratio >= 0:
        return f"worst_ratio = {check.worst_ratio}: an error is a number from 0 on, or infinite"
    if measurement.outcome is not Outcome.CORRECT or check is None:
        return ""
    elements = problem.output_elements
    if check.elements != elements or not 0 <= check.worst_ratio <= 1:
        return f"a correct result compares all {elements:,} elements and keeps the error within the bound"
    return impossible(problem, profile, measurement)


@lru_cache(maxsize=_KNOWN_CONFIGS)
def _misfit(config: Config) -> str:
    """Why a config is not a valid assignment of its family's knobs; empty when it is."""
    family = family_named(config.family)
    try:
        if family.config(config.knobs) != config:
            return f"{config.key[:200]} does not name the knobs of {family.name} in their order"
    except SpaceError as error:
        return f"{config.key[:200]}: {error}"
    return ""


def _all_positive(numbers: Iterable[float]) -> bool:
    return all(0 < number < math.inf for number in numbers)
