"""Programs of a table's entries: those that were measured, for today's launchers alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from space.devices import profile_named
from space.family import config_named
from space.kind import problem_from_key
from tests.unit.tuner.tables.test_exporters import CUBIN, DEVICE, DIGEST, WON, entry
from tuner.tables import programs
from workers.build import Build, digest_of
from workers.builder import source_of
from workers.kernels.sm90_wgmma import SOURCE


def test_a_kept_program_of_an_older_text_is_not_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its plan would be today's: arguments that the program does not know.
    asked: list[str] = []
    monkeypatch.setattr(programs, "kept_cubin", lambda _, digest: asked.append(digest) or CUBIN)
    found, won = programs.programs_of(DEVICE, tmp_path), entry(WON)
    assert (found(won), asked) == (CUBIN, [DIGEST])
    won["provenance"]["kernel_source_digest"] = "of last week"
    assert "another kernel than today's: measure it again with `gemmtune retune --stale`" in str(found(won))
    # Another kernel of the family may have changed, and not this one.
    source = source_of(problem_from_key(WON.key), config_named(won["config"]["key"]), "sm_90a")
    won["build_digest"] = same = digest_of(source, profile_named(DEVICE).arch.name, won["provenance"]["nvrtc"])
    assert (found(won), asked) == (CUBIN, [DIGEST, same])


@pytest.mark.parametrize("nvrtc", ["13.0", "12.9"])
def test_what_an_earlier_text_of_the_same_machine_code_measured_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nvrtc: str
) -> None:
    def compiled(source: str, arch: str, _: Path) -> Build:
        return Build(digest_of(source, arch, "13.0"), CUBIN, 0, (), "13.0", 0.0)

    monkeypatch.setattr(programs, "compile_source", compiled)
    found, won = programs.programs_of(DEVICE, tmp_path), entry(WON)
    won["provenance"] |= {"kernel_source_digest": SOURCE.alike[0], "nvrtc": nvrtc}
    said = "its program is another one today: tune it again, or export on a machine with the NVRTC that built it"
    assert found(won) == (CUBIN if nvrtc == "13.0" else said)
