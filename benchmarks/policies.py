"""What a captured program of long products takes with a store's bests under each policy, beside torch's.

python -m benchmarks.policies --db FILE --tune 48 --out benchmarks/results/policies_h200.md
python -m benchmarks.policies --db FILE --from benchmarks/stores/h200_halves/policies.jsonl.gz

The program is the products of Llama-3-8B's layers in prefill, one behind the other, with norms, gates and residuals
between them and without attention. Its graphs are timed as `benchmarks.deployed` times those of single products: turns
and chains at a clock that all arms share, alone at its own, bursts after rest. Ratios are torch's time over the arm's,
joules the arm's over torch's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks.command import as_command, gpu_of_torch, needing_torch, positive

with needing_torch():
    import torch
    from torch import Tensor
    from torch.nn import functional

from benchmarks.deployed_measuring import tuner_of
from benchmarks.deployed_table import REGIMES
from benchmarks.deployed_timing import Arm, Energy, Times, times
from benchmarks.published import add_out, publish
from benchmarks.restored import add_from, restore_missing
from gemmtune.torch import configure, gemm, kernels
from gemmtune.torch.sources import Found
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.evidence.store import Store
from tuner.settings import database_url
from workers.measurement import Policy

HIDDEN, QKV, INNER = 4096, 6144, 14336
LAYERS: Final = 4
#: Standard deviation of the weights.
SPREAD: Final = 0.02
#: Roughly what an H200 takes for a floating-point operation of such a program, in µs.
US_PER_FLOP: Final = 1.5e-9
#: Policies whose bests run, in the order of the table.
POLICIES: Final = (Policy.SUSTAINED, Policy.BURST, Policy.CHAIN)

#: Multiplies the first by the second, transposed, into the third.
Multiply = Callable[[Tensor, Tensor, Tensor], object]


class Program:
    """Layers' products with what lies between them.

    Args:
        rows: tokens that are prefilled together.
    """

    def __init__(
        self, rows: int, device: str = "cuda", hidden: int = HIDDEN, qkv: int = QKV, inner: int = INNER
    ) -> None:
        self.extents = ((qkv, hidden), (hidden, hidden), (2 * inner, hidden), (hidden, inner))
        self.rows = rows
        self._x = torch.randn(rows, hidden, device=device).bfloat16()
        self._weights = [
            [(torch.randn(n, k, device=device) * SPREAD).bfloat16() for n, k in self.extents] for _ in range(LAYERS)
        ]
        self._made = [torch.empty(rows, n, device=device, dtype=torch.bfloat16) for n, _ in self.extents]

    def problems(self) -> list[Gemm]:
        """The four products of a layer."""
        return [Gemm.of(self.rows, n, k) for n, k in self.extents]

    def run(self, multiply: Multiply) -> Tensor:
        """What the last layer returns, of [rows, hidden]."""
        x = self._x
        qkv, o, gate_up, down = self._made
        for w_qkv, w_o, w_gate_up, w_down in self._weights:
            multiply(_normed(x), w_qkv, qkv)
            # Attention would make as many columns of these.
            multiply(qkv[:, : x.shape[1]].contiguous(), w_o, o)
            x = x + o
            multiply(_normed(x), w_gate_up, gate_up)
            gate, up = gate_up.chunk(2, 1)
            multiply(functional.silu(gate) * up, w_down, down)
            x = x + down
        return x


@dataclass(frozen=True, slots=True)
class Answers:
    """A source that answers with a store's bests under one policy."""

    found: Mapping[str, Found]

    @classmethod
    def of(cls, store: Store, problems: Sequence[Problem], device: str, policy: Policy) -> Answers:
        """The bests of all problems.

        Raises:
            SystemExit: the store lacks one.
        """
        found = {}
        for problem in problems:
            best = store.best(problem, device, policy)
            if best is None:
                raise SystemExit(f"{problem.title} has no best under {policy.value}: tune it with --tune 48")
            cublaslt = best.winner.provenance.cublaslt
            found[problem.key] = Found(best.config, "of the store", "measured", cublaslt)
        return cls(found)

    def find(self, problem: Problem, device: str) -> Found:
        """The best of a product of the program; nothing for others."""
        return self.found.get(problem.key) or Found(None, "not a product of the program")

    def families(self) -> str:
        """The families that answer, in the order of the products."""
        return ", ".join(one.config.family for one in self.found.values() if one.config)


def main() -> int:
    """Tunes what the store lacks, times the programs, prints the table and writes it with its command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--db", required=True, help="store with the bests, or one that --tune fills")
    add_from(options)
    options.add_argument("--rows", type=positive, default=4096, help="tokens that are prefilled together")
    options.add_argument("--tune", type=positive, metavar="CANDIDATES", help="first tune what it lacks or has as stale")
    add_out(options)
    given = options.parse_args()
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    device, program = gpu_of_torch(), Program(given.rows)
    problems = program.problems()
    restore_missing(given.db, given.backup)
    with Store.open(database_url(given.db), create=given.tune is not None) as store:
        with tuner_of(store, given.tune) as tuned:
            for problem in problems:
                tuned(problem)
        answers = {policy.value: Answers.of(store, problems, device, policy) for policy in POLICIES}
    text = measured(program, answers)
    print(text)
    publish("policies", given.out, text, read=[given.backup] if given.backup else [])
    return 0


def measured(program: Program, answers: Mapping[str, Answers]) -> str:
    """The table of torch's program and of one for each policy."""
    arms = {"torch": Arm(lambda _: program.run(_theirs))}
    for policy, source in answers.items():
        arms[policy] = Arm(lambda _: program.run(_ours), partial(configure, source, trusted=["measured"]))
    differences = {policy: difference(program, arms[policy]) for policy in answers}
    about_us = LAYERS * sum(problem.flops for problem in program.problems()) * US_PER_FLOP
    timed = times(arms, [None], about_us, Energy(), settles=True)
    configure()
    return table(program.rows, timed, answers, differences)


def difference(program: Program, arm: Arm) -> float:
    """Root mean square of the difference between an arm's result and torch's, as a share of torch's.

    Raises:
        SystemExit: torch refuses to run a config of the arm, and computes a product by itself.
    """
    right = program.run(_theirs).double()
    arm.prepare()
    off = program.run(_ours).double() - right
    refused = [one.why for one in kernels.everything() if not isinstance(one, kernels.Kernel)]
    if refused:
        raise SystemExit(f"torch computes a product of the program: {refused[0]}")
    return float(off.square().mean().sqrt() / right.square().mean().sqrt())


def table(
    rows: int, timed: Mapping[str, Times], answers: Mapping[str, Answers], differences: Mapping[str, float]
) -> str:
    """One line per policy."""
    theirs = timed["torch"]
    lines = [
        f"{LAYERS} layers, {rows} tokens. Torch's program takes {theirs.us['alone'] / LAYERS:.1f} µs a layer alone.",
        "", "| bests | " + " | ".join(REGIMES) + " | joules | RMS difference | families |",
        "| --- " * (len(REGIMES) + 4) + "|",
    ]  # fmt: skip
    for policy, source in answers.items():
        ours = timed[policy]
        ratios = " | ".join(f"{theirs.us[regime] / ours.us[regime]:.3f}" for regime in REGIMES)
        joules = f"{ours.joules / theirs.joules:.3f}" if ours.joules and theirs.joules else ""
        lines.append(f"| {policy} | {ratios} | {joules} | {differences[policy]:.4f} | {source.families()} |")
    return "\n".join(lines)


def _normed(x: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.shape[1],))


def _theirs(a: Tensor, b: Tensor, c: Tensor) -> object:
    return torch.matmul(a, b.t(), out=c)


def _ours(a: Tensor, b: Tensor, c: Tensor) -> object:
    return gemm(a, b.t(), out=c)


if __name__ == "__main__":
    as_command(main)
