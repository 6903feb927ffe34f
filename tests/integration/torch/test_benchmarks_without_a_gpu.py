"""Benchmarks that run torch on a GPU end with one line where torch sees none."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from tests.unit.benchmarks.test_command import DEV, ended  # noqa: E402


@pytest.mark.parametrize("command", [
    "agreement", "algorithm_round_trip", "cpp_bundle", f"deployed {DEV} --db x", f"floors {DEV} x", "model",
    "policies --db x", f"rotation {DEV} x", "torch_overhead",
    f"unmeasured {DEV}",
])  # fmt: skip
def test_without_a_gpu_what_needs_one_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said = "torch sees no GPU here: run this on a machine with one, and with a build of PyTorch for CUDA"
    assert ended(capsys, monkeypatch, command) == said
