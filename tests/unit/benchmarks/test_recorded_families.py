"""Each family's fastest correct screening is compared with the library's, problem by problem."""

from __future__ import annotations

from pathlib import Path

from benchmarks.recorded_families import alignment_of, layout_of, recorded, table
from space.config import Config
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.support import FACTS, RECORDED_PROVENANCE, measured
from workers.measurement import Outcome
from workers.recording import file_name, write_recording

ODD = Gemm.parse("16x1052x12288", "bf16", "tn")
WHOLE = Gemm.parse("16x1024x4096")
LIBRARY, WGMMA, MMA = (family_named(name).config({}) for name in ("cublaslt", "sm90_wgmma", "mma_sync"))


def write(folder: Path, problem: Gemm, *taken: tuple[Config, float, Outcome]) -> None:
    rows = [(measured(config, us, problem, outcome=outcome), RECORDED_PROVENANCE) for config, us, outcome in taken]
    write_recording(folder / file_name(problem), problem, FACTS, rows)


def test_the_fastest_correct_one_of_each_family_counts(tmp_path: Path) -> None:
    right, wrong = Outcome.CORRECT, Outcome.WRONG_RESULT
    write(tmp_path, ODD, (LIBRARY, 24.0, right), (WGMMA, 40.0, right), (MMA, 16.0, right),
          (MMA.changed({"stages": 3}), 12.0, right), (MMA.changed({"stages": 2}), 1.0, wrong))  # fmt: skip
    write(tmp_path, WHOLE, (LIBRARY, 9.0, right), (WGMMA, 6.0, right))
    write(tmp_path, Gemm.parse("16x1024x8192"), (WGMMA, 6.0, right))  # nothing of the library
    told = [*recorded(tmp_path)]
    assert [(one.problem, one.first, one.gain(one.first)) for one in told] == [
        (WHOLE, "sm90_wgmma", 1.5), (ODD, "mma_sync", 2.0),
    ]  # fmt: skip
    assert table(("A, B", "layout"), told, layout_of).splitlines()[2:] == [
        "| bf16 | nt | 1 | – | 1.500 (1) | 1.500 | 0 | 1 |",
        "| bf16 | tn | 1 | 2.000 (1) | 0.600 (1) | 2.000 | 1 | 0 |",
        "| all |  | 2 | 2.000 (1) | 0.949 (2) | 1.732 | 1 | 1 |",
    ]


def test_lines_are_aligned_to_what_divides_them() -> None:
    assert alignment_of(ODD) == ("2", "16", " 8")
    assert alignment_of(Gemm.parse("16x1052x4097", "bf16")) == ("2", " 2", " 2")
    assert alignment_of(Gemm.parse("16x1052x4097", "tf32", "nn")) == ("4", " 4", "16")
