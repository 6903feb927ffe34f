"""`benchmarks.gpu_results` without a GPU: which GPUs its steps use, and what their tables are called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import gpu_results


@pytest.mark.parametrize(("name", "model"), [
    ("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA A100-SXM4-40GB", "a100"),
    ("NVIDIA GeForce RTX 4090", "4090"),
])  # fmt: skip
def test_a_table_is_named_after_the_gpu_that_made_it(name: str, model: str) -> None:
    assert gpu_results.model_of(name) == model


def test_steps_use_the_gpus_that_are_named_and_their_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran, words = list[str](), ["x", "--only", "faults", "fleet", "--out", "out", "--logs", str(tmp_path)]
    monkeypatch.setattr(gpu_results, "gpu_names", lambda: ["NVIDIA H100 80GB HBM3"] * 3)
    done = SimpleNamespace(returncode=0)
    monkeypatch.setattr(subprocess, "run", lambda words, **_: ran.append(" ".join(words)) or done)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*words, "--gpus", "1", "2"])
    assert gpu_results.main() == 0
    faults, fleet = ran
    assert faults.startswith(("env CUDA_VISIBLE_DEVICES=1 ", "env CUDA_VISIBLE_DEVICES=2 "))
    assert faults.endswith(" -m benchmarks.faults --out out/faults_h100.md")
    assert fleet.startswith("env CUDA_VISIBLE_DEVICES=1,2 ")
    ran.clear()
    monkeypatch.setattr(sys, "argv", words)
    assert gpu_results.main() == 0
    assert ran[1].startswith("env CUDA_VISIBLE_DEVICES=0,1,2 ")
    monkeypatch.setattr(sys, "argv", [*words, "--gpus", "3"])
    with pytest.raises(SystemExit):
        gpu_results.main()
    assert "--gpus 3: the driver shows 3, from 0 on" in capsys.readouterr().err
