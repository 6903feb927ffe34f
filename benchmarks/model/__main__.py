"""Blocks of Llama-3-8B and of Qwen3-30B-A3B: torch alone beside `gemmtune.torch.install`, end to end.

python -m benchmarks.model --out benchmarks/results/model_h200.md

A block runs once per phase while its products are recorded; these are tuned, the table is exported behind the
guard, and installed. Then four blocks, one behind the other, run in alternating turns with and without it: eager,
compiled, as a CUDA graph of what was compiled, and, in prefill, compiled with the table in all calls. In the graph each
product is also replaced alone, which shows what it wins or loses, in its own kernels and in all others. All times are
those of one block.

Blocks can be measured one by one, each with `--blocks NAME --json FILE`, which goes on with what FILE lacks; `--merge`
joins the files, without PyTorch.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.command import as_command, needing_torch, positive
from benchmarks.model import parts
from benchmarks.published import add_out
from tuner.tables.exporters.guard import MIN_GAIN


def main() -> int:
    """Joins parts, or measures; prints the tables and writes them with their command."""
    given = options()
    if given.merge:
        return parts.merged(given.merge, given.out)
    # Parts are joined where there is no torch.
    with needing_torch():
        from benchmarks.model.measuring import measure

    return measure(given)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", metavar="NAMES", help="joined by commas; all if none is named")
    parser.add_argument("--modes", metavar="NAMES", help="joined by commas; all if none is named")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: tiny blocks, to try it out")
    parser.add_argument("--db", type=Path, help="store that keeps what is tuned, and is resumed from")
    parser.add_argument("--tune-devices", default="cuda:0", help="devices that tune, joined by commas")
    parser.add_argument(
        "--tune-seconds", type=float, default=240.0, help="begin no further problem of a block after this time"
    )
    parser.add_argument("--candidates", type=positive, default=48)
    parser.add_argument("--screening-seconds", type=float, default=6.0, help="of one problem")
    parser.add_argument("--turns", type=positive, default=10, help="of the finals")
    parser.add_argument("--min-gain", type=float, default=MIN_GAIN)
    parser.add_argument("--json", type=Path, help="keep the tables here; blocks that it holds are not measured again")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="JSON", help="files of --json to join")
    add_out(parser)
    return parser.parse_args()


if __name__ == "__main__":
    as_command(main)
