"""The tables of `benchmarks.deployed`: a row a problem, ratios by class, and parts that several GPUs measured."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.command import reading
from benchmarks.published import as_table, begun, joined_facts, shared_facts
from space.families.cublaslt import NOT_LISTED
from space.family import is_own
from workers.measurement import Measurement

#: As `benchmarks.deployed_timing` times them.
REGIMES: Final = ("turns", "alone", "burst", "chain")
#: What runs beside torch: what is served, the best of our own families, the library's fastest algorithm of those that
#: its heuristic lists, and of the others.
ARMS: Final = ("served", "own", "library", "unlisted")


def arm_of(rival: Measurement) -> str:
    """The arm whose fastest a rival may be."""
    if is_own(rival.config):
        return "own"
    return "unlisted" if NOT_LISTED in rival.note else "library"


@dataclass(frozen=True, slots=True)
class Row:
    """One problem.

    Attributes:
        served: family that is served, and the policy that decided it.
        us, joules: of one product by arm, then regime; torch's are the arm `torch`.
        error: the served result's largest error over torch's.
        tune_seconds: that tuning it took; None where the store had it.
    """

    name: str
    group: str
    problem: str
    dtype: str
    flops: float
    served: str
    us: Mapping[str, Mapping[str, float]]
    joules: Mapping[str, float | None]
    error: float
    tune_seconds: float | None = None

    def ratio(self, arm: str, regime: str) -> float | None:
        """torch's time over the arm's; None where the store has nothing for the arm."""
        return self.us["torch"][regime] / self.us[arm][regime] if arm in self.us else None

    def saving(self, arm: str) -> float | None:
        """The arm's joules over torch's."""
        ours, theirs = self.joules.get(arm), self.joules.get("torch")
        return ours / theirs if ours and theirs else None


def _cell(text: str) -> str:
    """Text of a list, which may hold what ends a cell."""
    return text.replace("|", "\\|")


def groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each line of the summary."""
    sixteen = [one for one in rows if one.dtype in ("bf16", "fp16")]
    plain = [one for one in sixteen if one.group != "odd"]
    large = [one for one in plain if one.group in ("square", "prefill", "train_dgrad", "train_wgrad", "train_fwd")
             and min(map(int, one.problem.split("x"))) >= 2048]  # fmt: skip
    made = {
        "16-bit but odd": plain, "16-bit square, prefill, training, M, N, K >= 2048": large,
        "decode and moe": [one for one in rows if one.group in ("decode", "moe")],
        "fp8 of 40 µs and more": [one for one in rows if one.dtype.startswith("fp8")
                                  and one.us["torch"]["alone"] >= 40],
        "all but odd": [one for one in rows if one.group != "odd"], "odd": [one for one in rows if one.group == "odd"],
    }  # fmt: skip
    for name in sorted({one.group for one in rows}):
        made.setdefault(f"class {name}", [one for one in rows if one.group == name])
    return {name: found for name, found in made.items() if found}


def summary(rows: Sequence[Row]) -> str:
    """Geometric means and the worst ratio of each group and arm."""
    lines = [
        "| problems | n | arm | " + " | ".join(REGIMES) + " | worst | joules |", "| --- " * (len(REGIMES) + 5) + "|"
    ]  # fmt: skip
    for name, found in groups(rows).items():
        for arm in ARMS:
            with_arm = [one for one in found if arm in one.us]
            if not with_arm:
                continue
            ratios = [[one.ratio(arm, regime) or 1.0 for one in with_arm] for regime in REGIMES]
            deployed = [
                value for regime, values in zip(REGIMES, ratios, strict=True) if regime != "turns" for value in values
            ]
            savings = [saving for one in with_arm if (saving := one.saving(arm)) is not None]
            cells = [f"{mean(values):.3f}" for values in ratios]
            lines.append(f"| {_cell(name)} | {len(with_arm)} | {arm} | " + " | ".join(cells)
                         + f" | {min(deployed):.3f} | {mean(savings):.3f} |")  # fmt: skip
    against = [
        one.us["library"]["alone"] / one.us["own"]["alone"] for one in rows
        if one.group != "odd" and "own" in one.us and "library" in one.us
    ]  # fmt: skip
    lines.append(
        f"\nOwn families against the library's best, alone, all but odd: {mean(against):.3f} ({len(against)})."
    )
    if seconds := [one.tune_seconds for one in rows if one.tune_seconds is not None]:
        lines.append(f"{len(seconds)} problems were tuned from scratch in {sum(seconds) / 60:.1f} minutes of one GPU.")
    return "\n".join(lines)


def table(rows: Iterable[Row]) -> str:
    """One line per problem: torch's microseconds alone, and each arm's ratios."""
    lines = ["| problem | class | served | torch alone, µs | arm | " + " | ".join(REGIMES) + " | joules | error |",
             "| --- " * (len(REGIMES) + 7) + "|"]  # fmt: skip
    for one in rows:
        for arm in ARMS:
            if arm in one.us:
                cells = [f"{one.ratio(arm, regime):.3f}" for regime in REGIMES]
                saving = one.saving(arm)
                lines.append(
                    f"| {_cell(one.name)} {one.dtype} {one.problem} | {_cell(one.group)} | {one.served} "
                    f"| {one.us['torch']['alone']:.2f} | {arm} | " + " | ".join(cells)
                    + f" | {'' if saving is None else f'{saving:.3f}'} | {one.error:.2f} |"
                )  # fmt: skip
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Part:
    """What runs over one part of a list have measured.

    Attributes:
        commands: facts of each run, by its command.
        refused: why a problem has no row, by its name.
    """

    commands: dict[str, dict[str, str]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Part:
        """The part that an earlier run kept.

        Raises:
            WrongInput: the file is none.
        """
        with reading(path, "a part that --json kept"):
            known = json.loads(path.read_text())
            return cls(known["commands"], [Row(**one) for one in known["rows"]], known.get("refused", {}))

    def text(self, listed: Sequence[str]) -> str:
        """The summary, and which problems of the list it lacks.

        Args:
            listed: names of the problems of the list.
        """
        found = {row.name for row in self.rows}
        lacking = [f"{name} ({self.refused.get(name, 'not measured')})" for name in listed if name not in found]
        counted = f"{len(found)} of {len(listed)} problems of the list. Not here: {', '.join(lacking) or 'none'}."
        return f"{summary(self.rows)}\n{counted}"

    def begin(self, command: str, facts: dict[str, str]) -> None:
        """Notes a run that adds rows.

        Raises:
            Unpublishable: they could not stand in one table with the rows of the runs before.
        """
        if not self.rows and shared_facts([*self.commands.values(), facts]) is None:
            # Of another program; it measured nothing.
            self.commands.clear()
            self.refused.clear()
        self.commands.update(begun(self.commands, command, facts))


def merged(files: Sequence[Path], listed: Sequence[str], out: Path | None, programs: bool = False) -> int:
    """Prints one table of all parts; 1 where their runs can't share one or a problem is twice.

    Args:
        listed: names of the problems in the list that was measured; the table says which of them it lacks.
        out: where to write it, with the facts that the runs share.
        programs: they may be of several programs with the same kernels, and of several lists; the table says how many
            rows each program measured, and of a problem that several parts have it has the row of the last.

    Raises:
        Unpublishable: it is to be written, and a file is not tracked by git.
    """
    parts = [Part.read(path) for path in files]
    if programs:
        parts = _latest(parts)
    refused = {name: reason for part in parts for name, reason in part.refused.items()}
    whole = Part(rows=[row for part in parts for row in part.rows], refused=refused)
    text = whole.text(listed)
    if programs:
        text += f"\nRows by program: {', '.join(_rows_by_program(parts))}."
    print(text)
    runs = [facts for part in parts for facts in part.commands.values()]
    if shared_facts(runs, programs) is None:
        print("the parts were not measured by one program, from one list, on one model of device: nothing is written")
        return 1
    if twice := [name for name, count in Counter(row.name for row in whole.rows).items() if count > 1]:
        print(f"{twice[0]} is in more than one part: merge parts that share no problem; nothing is written")
        return 1
    if out and (facts := joined_facts("deployed", runs, files, programs)):
        out.write_text("\n\n".join([as_table(facts), text, table(whole.rows)]) + "\n")
    return 0


def _latest(parts: Sequence[Part]) -> list[Part]:
    """The parts without rows of problems that a later one measured again."""
    last = {row.name: place for place, part in enumerate(parts) for row in part.rows}
    return [
        Part(part.commands, [row for row in part.rows if last[row.name] == place], part.refused)
        for place, part in enumerate(parts)
    ]


def _rows_by_program(parts: Sequence[Part]) -> Iterator[str]:
    rows = Counter[str]()
    for part in parts:
        rows[", ".join(dict.fromkeys(facts["program"] for facts in part.commands.values()))] += len(part.rows)
    return (f"{count} of {program}" for program, count in rows.items())


def mean(ratios: Sequence[float]) -> float:
    """Geometric mean; 0 where one is 0, and NaN of nothing."""
    if not ratios:
        return math.nan
    return statistics.geometric_mean(ratios) if all(ratios) else 0.0
