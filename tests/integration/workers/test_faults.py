"""The planted faults still fit the kernel: each changes one place, and compiles where it should."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.faults import FAULTS, NO_POLLS, AnchorLost, Fault, FaultResult
from space.explain import is_legal
from space.family import family_named
from tests.support import measured
from workers.build import Build, BuildFailure, compile_source
from workers.kernels.source import source_of_family
from workers.measurement import Outcome

FAMILY = family_named("sm90_wgmma")


@pytest.mark.parametrize("fault", [*FAULTS, NO_POLLS], ids=lambda fault: fault.name)
def test_a_fault_is_one_change_of_the_real_kernel_that_compiles(fault: Fault) -> None:
    assert is_legal(FAMILY, fault.problem, fault.config)
    sound = source_of_family(FAMILY).render(FAMILY.compile_constants(fault.problem, fault.config))
    broken = fault.plant(sound)
    assert broken != sound
    made = compile_source(broken, "sm_90a", None)
    if Outcome.COMPILE in fault.outcomes:
        assert isinstance(made, BuildFailure)
        assert fault.said in made.reason
    else:
        assert isinstance(made, Build), made


def test_there_are_enough_faults_that_the_hardware_must_show() -> None:
    assert len([fault for fault in FAULTS if fault.certain]) >= 16
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_a_fault_whose_place_is_gone_says_so() -> None:
    with pytest.raises(AnchorLost, match="stands 0 times"):
        FAULTS[0].plant("")


def test_a_fault_counts_as_caught_only_if_the_candidate_behind_it_measured_normally() -> None:
    fault = FAULTS[0]
    wrong = replace(measured(fault.config, outcome=Outcome.WRONG_RESULT), detail=f"elements {fault.said}")
    sound, slow = measured(fault.config, 10.0), measured(fault.config, 12.0)
    failed = measured(fault.config, outcome=Outcome.LAUNCH)
    assert FaultResult(fault, wrong, 1.0, sound, sound).right
    assert not FaultResult(fault, wrong, 1.0, sound, slow).right
    assert not FaultResult(fault, wrong, 1.0, sound, failed).right
    assert not FaultResult(fault, wrong, 1.0, failed, failed).right
    assert not FaultResult(fault, sound, 1.0, sound, sound).right
