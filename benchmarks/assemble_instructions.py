"""Compiles every row of the instruction tables, and neighbouring forms that the tables exclude.

    python -m benchmarks.assemble_instructions --out benchmarks/results/assemble_instructions.md

Needs no GPU. Exits with 1 if the compiler disagrees with a table.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.command import as_command
from benchmarks.instruction_samples import Sample, refusals, samples
from benchmarks.published import add_out, publish
from workers.build import nvrtc_version


def main() -> int:
    """Prints one line per rule, then each disagreement."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_out(options)
    given = options.parse_args()
    asked = samples()
    started = time.perf_counter()
    said = refusals(asked)
    seconds = time.perf_counter() - started
    wrong = [(sample, reason) for sample, reason in zip(asked, said, strict=True) if sample.legal == bool(reason)]
    text = "\n".join(_table(asked, [sample for sample, _ in wrong]))
    text += f"\n\n{len(asked):,} samples, {len(wrong)} disagreements, NVRTC {nvrtc_version()}, {seconds:.0f} s"
    print(text)
    for sample, reason in wrong:
        print(_line(sample, reason), file=sys.stderr)
    publish("assemble_instructions", given.out, text)
    return bool(wrong)


def _table(asked: Sequence[Sample], wrong: Sequence[Sample]) -> Iterator[str]:
    groups, otherwise = (
        Counter((sample.instruction, sample.rule, sample.legal) for sample in some) for some in (asked, wrong)
    )
    yield "| instruction | rule | samples | expected | otherwise |"
    yield "| --- | --- | ---: | --- | ---: |"
    for group, count in sorted(groups.items()):
        instruction, rule, legal = group
        yield f"| {instruction} | {rule} | {count} | {'assembles' if legal else 'refused'} | {otherwise[group]} |"


def _line(sample: Sample, reason: str) -> str:
    what = f"refused: {reason}" if sample.legal else "assembled, though it breaks the rule"
    return f"{sample.arch} {sample.instruction}, {sample.rule}: {what}\n  {sample.ptx}"


if __name__ == "__main__":
    as_command(main)
