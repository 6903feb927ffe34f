"""Measures the host time of one call of `gemmtune.torch.gemm` and of torch's own product, on a GPU.

python -m benchmarks.torch_overhead --out benchmarks/results/torch_overhead_h200.md

Kernels are short and calls do not wait, so the host's time dominates. Each figure is the median over batches; a single
thread does all the work, so processor time equals wall time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.command import as_command, gpu_of_torch, needing_torch

with needing_torch():
    import torch

from benchmarks.published import add_out, publish
from benchmarks.restored import empty_store
from gemmtune.torch import configure, gemm, kernels

#: Shapes of A and B; the last one is packed, and the third may use split-K.
SHAPES = ((64, 64, 64), (16, 512, 512), (16, 512, 4096), (128, 256, 256), (33, 65, 129))
BATCHES, CALLS = 40, 200
#: Limit of one call's host time.
MOST_US = 15.0


def main() -> None:
    """Prints the table and writes it with its command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--source", help="where configs come from; by default an empty store: the model answers")
    add_out(options)
    given = options.parse_args()
    with empty_store() as empty:
        configure(empty if given.source is None else given.source)
        text, slowest = measured()
        configure()
    print(text)
    publish("torch_overhead", given.out, text, read=[Path(given.source)] if given.source else [])
    sys.exit(slowest > MOST_US)


def measured() -> tuple[str, float]:
    """The table, and the host microseconds of the slowest `gemm`."""
    about = gpu_of_torch()
    lines = [f"{about}, torch {torch.__version__}, median of {BATCHES} batches of {CALLS} calls.", "",
             "| M×N×K, bf16 nt | config | gemm, µs | under the dispatcher, µs | torch.matmul, µs |",
             "| --- | --- | ---: | ---: | ---: |"]  # fmt: skip
    slowest = 0.0
    with torch.no_grad():
        for m, n, k in SHAPES:
            a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
            b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16).t()
            gemm(a, b)
            found = kernels.everything()[-1]
            name = found.config.knobs_text if isinstance(found, kernels.Kernel) else found.why
            op = torch.ops.gemmtune.gemm.default
            ours = host_us(partial(gemm, a, b))
            dispatched = host_us(partial(op, a, b, None, None, 1.0, 1.0, "none", torch.bfloat16, False))
            theirs = host_us(partial(torch.matmul, a, b))
            slowest = max(slowest, ours)
            lines.append(f"| {m}×{n}×{k} | `{name}` | {ours:.1f} | {dispatched:.1f} | {theirs:.1f} |")
    lines.append(f"\nThe slowest takes {slowest:.1f} µs; the limit is {MOST_US:g} µs.")
    return "\n".join(lines), slowest


def host_us(call: Callable[[], object]) -> float:
    """Host microseconds of one call."""
    taken = []
    for _ in range(BATCHES):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        taken.append((time.perf_counter() - started) / CALLS * 1e6)
    return statistics.median(taken)


if __name__ == "__main__":
    as_command(main)
