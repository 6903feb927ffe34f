"""Publishes a benchmark's tables, together with the facts that make them reproducible.

A published file begins with a table of facts: the command, the commit, the digests of the kernels, of the model, of
what was read and of the program, and the device. Parts of one table may come from several commits of one program; the
files that keep them are committed.
Nothing is written if the tree differs from its commit or an input is not tracked. Files under `benchmarks/results/`
may differ from the commit: no benchmark reads them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.facts import SHOWN, as_today, data, drivers, gpus, kernels, machine, models

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results"
#: What a benchmark on a GPU runs. Pages, tests and documents may differ between the parts of one table.
PROGRAM: Final = ("benchmarks", "gemmtune", "space", "tuner", "workers", "pyproject.toml")
#: Facts that every published file begins with, in this order.
FIELDS: Final = ("command", "commit", "kernels", "model", "data", "device", "driver")
#: Facts in which the parts of one table may differ, if their program is the same.
FREE: Final = frozenset({"command", "commit", "machine"})


class Unpublishable(SystemExit):
    """The tree or an input differs from the commit; the command ends with this message."""


def add_out(options: argparse.ArgumentParser) -> None:
    """Adds `--out FILE`; a dirty tree refuses it before anything is measured."""
    options.add_argument("--out", type=_publishable, metavar="FILE", help="write the table here, with its facts")


def publish(benchmark: str, out: Path | None, *paragraphs: str, read: Iterable[Path] = ()) -> None:
    """Writes the facts and the paragraphs to `out`; does nothing without one.

    Args:
        benchmark: the module that ran, as in `storm` or `search.stopping`.
        read: its input files and folders.

    Raises:
        Unpublishable: the tree is dirty or has changed since the command began, or an input is not tracked.
    """
    if out is not None:
        text = facts_table(benchmark, tracked(read))
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("\n\n".join([text, *paragraphs]) + "\n")


def facts_table(benchmark: str, read: Iterable[Path] = ()) -> str:
    """The facts of this run, as the table that a published file begins with."""
    if clean_commit() != _commit_at_start():
        raise Unpublishable("the tree has changed since this command began: run it again to publish what it prints")
    values = (
        command_of(benchmark), f"`{_commit_at_start()}`", kernels(), models(), data(ROOT, read), gpus(), drivers(),
    )  # fmt: skip
    program = program_of(_commit_at_start())
    return as_table({**dict(zip(FIELDS, values, strict=True)), "program": program, "machine": machine()})


def as_table(facts: dict[str, str]) -> str:
    """Facts as a Markdown table; the first fact is the heading."""
    first, *others = (f"| {name} | {value} |" for name, value in facts.items())
    return "\n".join([first, "| --- | --- |", *others])


def facts_of(text: str) -> dict[str, str]:
    """The facts at the head of a published text; empty without such a table."""
    rows = (line.strip("| ").split(" | ", 1) for line in text.split("\n\n")[0].splitlines() if line.startswith("| "))
    return {row[0]: row[1] for row in rows if len(row) == 2 and row[0] != "---"}


def shared_facts(parts: Sequence[dict[str, str]], programs: bool = False) -> dict[str, str] | None:
    """The facts of several runs, with the commands and commits of all; None where they can't stand in one table.

    Runs share a table if only command, machine and commit differ, and the program of the commits is the same. Parts
    that were printed before the program's digest was a fact share one only at the same commit.

    Args:
        programs: the program, its model, and what it read may differ as well, and the text of the kernels where its
            machine code is the same.
    """
    alike = FREE if all("program" in one for one in parts) else FREE - {"commit"}
    free = FREE | {"program", "model", "data", "kernels"} if programs else alike
    known = {tuple(value for name, value in one.items() if name not in free) for one in parts}
    texts = {as_today(one.get("kernels", "")) for one in parts} if programs else set()
    if len(known) != 1 or len(texts) > 1 or not all(parts):
        return None
    told = (free - {"machine"}).intersection(*parts)
    several = [name for name in told if len({one[name] for one in parts}) > 1]
    return parts[0] | {name: _joined(one[name] for one in parts) for name in several}


def begun(runs: Mapping[str, dict[str, str]], command: str, facts: dict[str, str]) -> dict[str, dict[str, str]]:
    """The facts of a run that adds to what the runs of a part have measured, by its command.

    Raises:
        Unpublishable: it could not stand in one table with the runs before.
    """
    earlier = list(runs.values())
    if earlier and shared_facts([*earlier, facts]) is None:
        odd = [name for name in facts if name not in FREE and any(one.get(name) != facts[name] for one in earlier)]
        raise Unpublishable(
            f"the part holds rows of another {' and '.join(odd)}: a table has one; give --json another file"
        )
    known = runs.get(command)
    return {command: (shared_facts([known, facts]) if known else None) or facts}


def joined_facts(
    benchmark: str, runs: Sequence[dict[str, str]], files: Sequence[Path], programs: bool = False
) -> dict[str, str] | None:
    """The facts of a table that this process joins from files of earlier runs; None where these can't share one.

    The command is this process's, which prints the table again wherever the files are; they are part of the data, and
    keep the commands of their runs.

    Args:
        runs: facts of each run.
        programs: runs of several programs may share it.

    Raises:
        Unpublishable: a file is not tracked by git.
    """
    shared = shared_facts(runs, programs)
    if shared is None:
        return None
    read = data(ROOT, tracked(files))
    if shared["data"] != data(ROOT, ()):
        read = f"{shared['data']}, {read}"
    return shared | {"command": command_of(benchmark), "data": read}


def _joined(texts: Iterable[str]) -> str:
    """Each word of the texts once, in the order of its first place: they end with a backquote, most begin with one."""
    words = (f"{word}`" for text in texts for word in re.split(r"`, (?=`|\w+ `)", text.removesuffix("`")))
    return ", ".join(dict.fromkeys(words))


def command_of(benchmark: str) -> str:
    """This process's command as a reader types it, in backquotes."""
    return f"`{shlex.join(['python', '-m', f'benchmarks.{benchmark}', *sys.argv[1:]])}`"


def tracked(paths: Iterable[Path]) -> list[Path]:
    """The paths, all tracked by git in this repository.

    Raises:
        Unpublishable: one of them is outside the repository or not tracked.
    """
    found = [Path(os.path.abspath(path)) for path in paths]
    for path in found:
        if not path.is_relative_to(ROOT) or not _git("ls-files", "--", str(path)):
            raise Unpublishable(f"{path} is not tracked in {ROOT}: commit what a benchmark reads before publishing it")
    return found


def clean_commit() -> str:
    """The commit that the tree equals, apart from results.

    Raises:
        Unpublishable: the tree is not a checkout of this repository, or differs from its commit.
    """
    if _git("rev-parse", "--show-toplevel") != str(ROOT):
        raise Unpublishable(f"{ROOT} is not the root of a git checkout: publish from a clone")
    results = RESULTS.relative_to(ROOT)
    if changed := _git("status", "--porcelain", "--untracked-files=all", "--", ".", f":(exclude){results}"):
        first = changed.splitlines()[0].split(maxsplit=1)[-1]
        raise Unpublishable(f"the tree differs from its commit ({first}): commit or stash it before publishing")
    return _git("rev-parse", "HEAD")


def program_of(commit: str) -> str:
    """Digest of what a benchmark on a GPU runs at a commit, in backquotes: `PROGRAM` but the results."""
    results = f"{RESULTS.relative_to(ROOT)}/"
    listed = _git("ls-tree", "-r", commit, "--", *PROGRAM).splitlines()
    held = "\n".join(line for line in listed if not line.partition("\t")[2].startswith(results))
    return f"`{hashlib.sha256(held.encode()).hexdigest()[:SHOWN]}`"


@cache
def _commit_at_start() -> str:
    return clean_commit()


def _publishable(text: str) -> Path:
    if Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder: name a file in it")
    try:
        _commit_at_start()
    except Unpublishable as refused:
        raise argparse.ArgumentTypeError(str(refused)) from refused
    return Path(text)


def _git(*words: str) -> str:
    """Output of a git command in this repository; empty if it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()
