"""What a store's answers are worth in a torch program, beside torch's own products and the library's best algorithm.

python -m benchmarks.deployed benchmarks/problems/dev.json --db FILE --tune 96 --out benchmarks/results/deployed_h200.md

With `--tune`, problems that the store lacks or has as stale are tuned first, on the same GPU;
`--from benchmarks/stores/h200/FILE` begins the store with what an H200 has tuned already. With several GPUs, run one
process a GPU (CUDA_VISIBLE_DEVICES), each with `--part I/N` and `--json`, which goes on where it stopped; then commit
these files and `--merge` them.

Four arms beside torch: `served` is what `gemmtune.torch` runs by itself, `own` the best of our own families, `library`
the fastest cuBLASLt algorithm that its heuristic lists, `unlisted` the fastest that it doesn't list. Ratios are torch's
time over the arm's: above 1 the arm is faster.
An arm whose config torch refuses to run (another cuBLASLt, say) has no line, and `served` says that torch computes.
torch's products are `matmul` (f32 as tf32), `_scaled_mm` with unit scales and fast accumulation, and `_int_mm`. Errors
are the largest of 256 random rows against float64, over the mean |C|, as a multiple of torch's. Only `--merge` works
without PyTorch.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.command import as_command, needing_torch
from benchmarks.deployed_table import merged
from benchmarks.named import named_problems
from benchmarks.published import add_out
from benchmarks.restored import add_from
from space.errors import ProblemError
from tuner.cli.record import part_of


def main() -> int:
    """Joins parts, or measures: prints a line per problem, then the summary."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", type=Path)
    options.add_argument("--db", help="store with the bests")
    add_from(options)
    options.add_argument("--part", default="1/1", metavar="I/N", help="every Nth problem, from the Ith on")
    options.add_argument("--merge", type=Path, nargs="+", metavar="JSON", help="tables of parts to join")
    options.add_argument(
        "--programs", action="store_true",
        help="join parts of several programs with the same kernels, and of several lists; of a problem in several "
        "parts the last one counts",
    )  # fmt: skip
    options.add_argument("--tune", type=int, metavar="CANDIDATES", help="first tune what it lacks or has as stale")
    options.add_argument("--seconds", type=float, default=3_600.0, help="begin no problem after this time")
    options.add_argument(
        "--json", type=Path, help="keep every number here; problems that it holds are not measured again"
    )
    add_out(options)
    given = options.parse_args()
    try:
        problems = part_of([*named_problems(given.problems)], given.part)
    except ProblemError as error:
        options.error(str(error))
    listed = [name for name, _, _ in problems]
    if given.merge:
        return merged(given.merge, listed, given.out, given.programs)
    if not given.db:
        options.error("--db: name the store with the bests, or one that --tune fills")
    if given.json and given.out:
        options.error("--json keeps a part: commit the file, and give --out to --merge")
    # Parts are joined where there is no torch.
    with needing_torch():
        from benchmarks.deployed_measuring import measure

    return measure(given, problems)


if __name__ == "__main__":
    as_command(main)
