"""Asks the compiler about every row of the instruction tables, and about the neighbours that they exclude.

    python -m benchmarks.assemble_instructions

Needs no GPU. Ends with exit code 1 when the compiler disagrees with a table.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from workers.build import nvrtc_version
from workers.conformance import Sample, refusals, samples


def main() -> int:
    """Prints one line a rule, then each disagreement."""
    asked = samples()
    started = time.perf_counter()
    said = refusals(asked)
    seconds = time.perf_counter() - started
    groups = Counter((sample.instruction, sample.rule, sample.legal) for sample in asked)
    wrong = [(sample, reason) for sample, reason in zip(asked, said, strict=True) if sample.legal == bool(reason)]
    wrong_groups = Counter((sample.instruction, sample.rule, sample.legal) for sample, _ in wrong)
    print("| instruction | rule | samples | expected | otherwise |")
    print("| --- | --- | ---: | --- | ---: |")
    for group, count in sorted(groups.items()):
        instruction, rule, legal = group
        print(f"| {instruction} | {rule} | {count} | {'assembles' if legal else 'refused'} | {wrong_groups[group]} |")
    print(f"\n{len(asked):,} samples, {len(wrong)} disagreements, NVRTC {nvrtc_version()}, {seconds:.0f} s")
    for sample, reason in wrong:
        print(_line(sample, reason), file=sys.stderr)
    return bool(wrong)


def _line(sample: Sample, reason: str) -> str:
    what = f"refused: {reason}" if sample.legal else "assembled, though it breaks the rule"
    return f"{sample.arch} {sample.instruction}, {sample.rule}: {what}\n  {sample.ptx}"


if __name__ == "__main__":
    sys.exit(main())
