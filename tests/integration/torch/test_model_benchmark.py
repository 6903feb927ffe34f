"""`benchmarks.model` on the CPU: tiny blocks, a planted table, and stand-ins for our kernels."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from benchmarks import published  # noqa: E402
from benchmarks.model import __main__ as benchmark  # noqa: E402
from benchmarks.model import comparing, machines, measuring, parts, tuning  # noqa: E402
from benchmarks.model.blocks import BLOCKS, TINY, Block, Inputs, Layers, Phase  # noqa: E402
from benchmarks.model.comparing import Compared, Setting, compare, installing, line  # noqa: E402
from benchmarks.model.machines import Cpu  # noqa: E402
from benchmarks.model.measuring import TINY_PACE  # noqa: E402
from gemmtune.torch import installed, kernels, record  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.integration.torch.standing_in import StandIn  # noqa: E402
from tests.support import DEVICE  # noqa: E402
from tests.unit.tuner.tables.test_exporters import entry, table  # noqa: E402
from tuner.tables.entries import canonical  # noqa: E402
from tuner.tables.exporters.guard import Guarded, guarded  # noqa: E402


class Anywhere(StandIn):
    def writes(self, out: object) -> bool:
        return True


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(machines, "_LOOK_SECONDS", 1e-6)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tuned: every product but two has an entry."""

    def exported(db: Path, device: str, keys: Collection[str], min_gain: float) -> Guarded:
        first, *others = sorted(keys)
        entries = [entry(Gemm.from_key(first), 1.0), *(entry(Gemm.from_key(key)) for key in others[1:])]
        return guarded(table(*entries), min_gain, set(keys))

    monkeypatch.setattr(tuning, "tuned", lambda shapes, device, plan: tuning.Tuned(DEVICE, 1.0, 9, {"x": "why"}))
    monkeypatch.setattr(tuning, "exported", exported)
    monkeypatch.setattr(installed, "Kernel", Anywhere)
    monkeypatch.setattr(kernels, "prepare", lambda key, problem, *_, **__: Anywhere(problem))
    monkeypatch.setattr(StandIn, "noted", [])


def test_every_table_is_printed(
    planted: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["model", "--device", "cpu", "--modes", "eager,captured,eager=True"])
    monkeypatch.setattr(measuring, "DECODE_PACE", TINY_PACE)
    monkeypatch.setattr(measuring, "DECODE", (1, 16))
    monkeypatch.setattr(measuring, "host_us", lambda machine, call: 1.0)
    assert benchmark.main() == 0
    text = capsys.readouterr().out
    rows = [line for line in text.splitlines() if line.startswith(("| prefill", "| decode"))]
    # Each row is printed when it is measured, and again in its table.
    assert sum(" | eager | " in line for line in rows) == sum(" | captured | " in line for line in rows) == 2 * 2 * 3
    assert sum(" | eager=True | " in line for line in rows) == 2 * 2
    products = [line.split(" | ")[1] for line in rows if " nt " in line]
    # Two of each block have no entry.
    assert len(products) == len(set(products)) == (4 + 5) * 3 - 2 * 2
    assert "Error" not in text
    assert "left to the library 1 ×" in text
    assert "A product that the table does not have" in text


def test_blocks_are_measured_one_by_one_and_joined(
    planted: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    facts = {"command": "`x`", "commit": "`1`", "data": "`l` `0`", "machine": "m"}
    monkeypatch.setattr(published, "tracked", list)
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(measuring, "run", lambda name, *_: f"## {name}")
    monkeypatch.setattr(measuring, "facts_table", lambda *_: "")
    monkeypatch.setattr(measuring, "facts_of", lambda _: facts)
    for name in BLOCKS:
        words = ["model", "--device", "cpu", "--blocks", name, "--json", str(tmp_path / f"{name}.json")]
        monkeypatch.setattr(sys, "argv", words)
        assert benchmark.main() == 0
    # What its file holds is not measured again.
    monkeypatch.setattr(measuring, "run", None)
    assert benchmark.main() == 0
    out, files = tmp_path / "model.md", [str(tmp_path / f"{name}.json") for name in BLOCKS]
    # --out would ask whether this tree is clean.
    monkeypatch.setattr(benchmark, "options", lambda: argparse.Namespace(merge=[*map(Path, files)], out=out))
    assert benchmark.main() == 0
    assert "| commit | `1` |" in (text := out.read_text())
    assert all(f"## {name}" in text for name in BLOCKS)
    other = tmp_path / "other.json"
    other.write_text(parts.Part({"`y`": facts | {"commit": "`2`"}}, {}).text())
    assert parts.merged([Path(files[0]), other], None) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_block_is_compared_and_a_mode_that_fails_costs_only_its_own_row(
    planted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, made = tmp_path / "table.json", Compared()
    path.write_bytes(canonical(table(entry(Gemm.of(2, 64, 128)))))
    setting = Setting(Cpu(), installing(1.0, "CPU"), path, {}, ("compiled", "captured"), TINY_PACE, TINY_PACE,
                      "aot_eager")  # fmt: skip
    with torch.no_grad():
        layers = Layers.of(TINY["llama3-8b"], 3, "cpu")
        compare(layers, Phase(2, 1, 4), setting, made)
        monkeypatch.setattr(Cpu, "capture", None)
        compare(layers, Phase(2, 1, 4), replace(setting, modes=("captured", "eager")), made)
    assert [(row.mode, row.launched) for row in made.rows] == [("compiled", 0), ("captured", 1), ("eager", 0)]
    assert len(made.failed) == 1


def test_a_gains_interval_leaves_out_as_many_turns_as_chance_allows() -> None:
    ours = [99.0, 98.0, 97.0, 96.0, 20.0, 95.0, 94.0, 93.0, 180.0]
    assert machines.gain([100.0] * 5, ours[:5]) == pytest.approx((0.03, 0.01, 0.8))
    assert machines.gain([100.0] * 9, ours) == pytest.approx((0.04, 0.01, 0.07))
    assert machines.gain([100.0] * 2, ours[:2]) == pytest.approx((0.015, 0.01, 0.02))


def test_an_interval_of_captured_blocks_holds_what_another_capture_would_say(
    planted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each graph repeats exactly, and the captures of one arm are a percent apart.
    us = {("torch", 0): 100.0, ("torch", 1): 101.0, ("ours", 0): 99.5, ("ours", 1): 100.5}
    monkeypatch.setattr(comparing, "alternating", lambda machine, arms, pace: {arm: [us[arm]] * 9 for arm in arms})
    path, made = tmp_path / "table.json", Compared()
    path.write_bytes(canonical(table(entry(Gemm.of(2, 64, 128)))))
    setting = Setting(Cpu(), installing(1.0, "CPU"), path, {}, ("captured",), TINY_PACE, TINY_PACE, "aot_eager")
    with torch.no_grad():
        compare(Layers.of(TINY["llama3-8b"], 2, "cpu"), Phase(2, 1, 4), setting, made)
    (row,) = made.rows
    assert row.saved == pytest.approx((1 - 100 / 100.5, 1 - 100.5 / 100, 1 - 99.5 / 101))
    assert (row.torch_us, row.ours_us) == (50.25, 50.0)


def test_the_arm_torch_runs_no_kernel_of_ours_and_the_other_does(
    planted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = dict[str, int]()

    def run_each(machine: object, arms: Any, pace: object) -> dict[str, list[float]]:  # noqa: ANN401
        for name, arm in arms.items():
            before = len(StandIn.noted)
            with arm.within():
                arm.run()
            launched[name] = len(StandIn.noted) - before
        return {name: [1.0] * 9 for name in arms}

    monkeypatch.setattr(comparing, "alternating", run_each)
    path, made = tmp_path / "table.json", Compared()
    path.write_bytes(canonical(table(entry(Gemm.of(2, 64, 128)))))
    setting = Setting(Cpu(), partial(installing(1.0, "CPU"), eager_us=0.0), path, {}, ("eager=True",), TINY_PACE,
                      TINY_PACE, "aot_eager")  # fmt: skip
    with torch.no_grad():
        compare(Layers.of(TINY["llama3-8b"], 3, "cpu"), Phase(1, 2), setting, made)
    assert not made.failed
    assert launched == {"torch": 0, "ours": 3}


class Poisonous(Anywhere):
    def launch(self, *args: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ANN401
        return super().launch(*args, **kwargs).fill_(float("nan"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_block_whose_result_is_nan_is_wrong(
    planted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "prepare", lambda key, problem, *_, **__: Poisonous(problem))
    path, made = tmp_path / "table.json", Compared()
    path.write_bytes(canonical(table(entry(Gemm.of(2, 64, 128)))))
    setting = Setting(Cpu(), installing(1.0, "CPU"), path, {}, ("captured",), TINY_PACE, TINY_PACE, "aot_eager")
    with torch.no_grad():
        compare(Layers.of(TINY["llama3-8b"], 2, "cpu"), Phase(2, 1, 4), setting, made)
    assert [(row.mode, line(row).endswith("| WRONG |")) for row in made.rows] == [("captured", True)]


@pytest.mark.parametrize("name", BLOCKS)
def test_the_blocks_are_those_of_the_models(name: str, tmp_path: Path) -> None:
    sizes = BLOCKS[name]
    expected = {
        "llama3-8b": {Gemm.of(16, 6144, 4096), Gemm.of(16, 4096, 4096), Gemm.of(16, 28672, 4096),
                      Gemm.of(16, 4096, 14336)},
        "qwen3-30b-a3b": {Gemm.of(16, 5120, 2048), Gemm.of(16, 2048, 4096), Gemm.of(16, 128, 2048),
                          Gemm.of(1, 1536, 2048, batch=128), Gemm.of(1, 2048, 768, batch=128)},
    }[name]  # fmt: skip
    with torch.device("meta"), torch.no_grad():
        block = Block.__new__(Block)
        torch.nn.Module.__init__(block)
        block.sizes = sizes
        attended, expert = sizes.heads * sizes.head, (sizes.experts,) * bool(sizes.experts)
        shapes = {
            "qkv": (attended + 2 * sizes.kv_heads * sizes.head, sizes.hidden), "o": (sizes.hidden, attended),
            "gate_up": (*expert, 2 * sizes.inner, sizes.hidden), "down": (*expert, sizes.hidden, sizes.inner),
        }  # fmt: skip
        for part, shape in shapes.items():
            setattr(block, part, torch.nn.Parameter(torch.empty(shape, dtype=torch.bfloat16), requires_grad=False))
        block.router = torch.nn.Parameter(torch.empty(sizes.experts, sizes.hidden, dtype=torch.bfloat16),
                                          requires_grad=False) if expert else None  # fmt: skip
        phase = Phase(16, 1, 8)
        with record(tmp_path / "shapes.csv") as recording:
            block(torch.empty(16, 1, sizes.hidden, dtype=torch.bfloat16), Inputs(sizes, phase, "meta"))
    assert set(recording.shapes.counts) == expected


@pytest.mark.parametrize("phase", [Phase(1, 16), Phase(1, 1, 8), Phase(4, 1, 8)])
def test_experts_are_those_that_the_tokens_take(phase: Phase) -> None:
    sizes = TINY["qwen3-30b-a3b"]
    with torch.no_grad():
        block, inputs = Block(sizes, "cpu", torch.float32), Inputs(sizes, phase, "cpu", torch.float32)
        x = torch.randn(phase.batch, phase.length, sizes.hidden)
        flat = x.view(-1, sizes.hidden)
        scores = torch.nn.functional.linear(flat, block.router).softmax(-1)
        expected = torch.zeros_like(flat)
        for token, experts in enumerate(inputs.taken.tolist()):
            for expert in experts:
                gate, up = (block.gate_up[expert] @ flat[token]).chunk(2)
                made = block.down[expert] @ (torch.nn.functional.silu(gate) * up)
                expected[token] += scores[token, expert] * made
        assert torch.allclose(block._feed_forward(x, inputs).view(-1, sizes.hidden), expected, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", TINY)
def test_layers_are_compiled_once_and_differ_in_their_weights(name: str) -> None:
    graphs = []

    def backend(module: torch.fx.GraphModule, _: object) -> Any:  # noqa: ANN401
        graphs.append(module)
        return module.forward

    torch.compiler.reset()
    layers, phase = Layers.of(TINY[name], 3, "cpu"), Phase(2, 1, 4)
    x, inputs = torch.randn(2, 1, layers.sizes.hidden).to(layers.dtype), [
        Inputs(layers.sizes, phase, "cpu") for _ in layers.blocks
    ]  # fmt: skip
    with torch.no_grad():
        expected = layers(Block.forward, x, inputs)
        assert torch.equal(layers(torch.compile(Block.forward, dynamic=False, backend=backend), x, inputs), expected)
    assert len(graphs) == 1
    assert not torch.equal(layers.blocks[0].o, layers.blocks[1].o)
