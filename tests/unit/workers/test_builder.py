"""Which candidates share a build: those whose kernels are the same text."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from space.config import Config
from space.devices import DeviceProfile
from space.kinds.gemm import Gemm
from space.knobs import KnobValue
from space.plug import Family
from tests.support import FAMILY, PROBLEM
from workers.build import BuildFailure
from workers.builder import Builder, BuildResult, Constants, source_of
from workers.errors import ProcessError


class Counting(Builder):
    """Compiles nothing and remembers what it was asked to."""

    def __init__(self) -> None:
        super().__init__(None, threads=1)
        self.compiled: list[Config] = []

    def submit(self, problem: Gemm, config: Config, constants: Constants) -> Future[BuildResult]:
        self.compiled.append(config)
        done: Future[BuildResult] = Future()
        done.set_result(BuildFailure("not compiled", ""))
        return done


def built(*configs: Config) -> tuple[int, list[Config]]:
    """How many were compiled, and who got a build."""
    builder = Counting()
    got = [config for config, _ in builder.builds(PROBLEM, configs)]
    builder.close()
    return len(builder.compiled), got


def test_candidates_that_differ_in_launch_knobs_share_one_build() -> None:
    configs = [FAMILY.config({"raster": raster, "raster_group": group}) for raster in ("along_m", "along_n")
               for group in (1, 4)]  # fmt: skip
    assert built(*configs) == (1, configs)


def test_a_launch_knob_that_changes_the_text_gets_a_build_of_its_own() -> None:
    whole, split, more = (FAMILY.config({"epilogue": "direct", "split_k": split}) for split in (1, 2, 4))
    assert built(whole, split, more) == (2, [whole, split, more])


def test_a_compile_knob_gets_a_build_of_its_own() -> None:
    assert built(FAMILY.config({"stages": 3}), FAMILY.config({"stages": 4}))[0] == 2


def test_constants_are_computed_once_a_candidate_and_are_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    computed, compiled = list[Config](), list[str]()
    compute = Family.compile_constants

    def counted(family: Family, problem: Gemm, config: Config, device: DeviceProfile) -> dict[str, KnobValue]:
        computed.append(config)
        return compute(family, problem, config, device)

    def remembered(source: str, *_: object, **__: object) -> BuildResult:
        compiled.append(source)
        return BuildFailure("not compiled", "")

    config = FAMILY.config({"stages": 3})
    source = source_of(PROBLEM, config, "sm_90a")
    monkeypatch.setattr(Family, "compile_constants", counted)
    monkeypatch.setattr("workers.builder.compile_source", remembered)
    builder = Builder(None, threads=1)
    assert [config for config, _ in builder.builds(PROBLEM, [config])] == [config]
    builder.close()
    assert (computed, compiled) == ([config], [source])


def test_compilers_that_cannot_be_started_are_an_error_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder(None, threads=1)
    with monkeypatch.context() as patch:
        patch.setattr("threading.Thread.start", lambda _: (_ for _ in ()).throw(RuntimeError("can't start new thread")))
        with pytest.raises(ProcessError, match=r"no compiler can be started \(can't start new thread\): free memory"):
            next(builder.builds(PROBLEM, [FAMILY.config({})]))
    builder.close()
    with pytest.raises(ProcessError, match=r"after shutdown.*open the device again"):
        next(builder.builds(PROBLEM, [FAMILY.config({})]))
