"""Walks of users, as texts.

`$` and `GET` are what the user does, `=` is the exit code or status unless it is 0 or 200, `>` are words that the
answer must have, and `!` words that it must not have. Line breaks of the answer don't count.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from fastapi.testclient import TestClient

from tests.shell import Shell


@dataclass
class Step:
    """One action of a user."""

    action: str
    code: int | None = None
    said: list[str] = field(default_factory=list)
    unsaid: list[str] = field(default_factory=list)


def steps(text: str) -> list[Step]:
    """The steps of a walk."""
    found: list[Step] = []
    for line in filter(None, text.splitlines()):
        mark, _, rest = line.partition(" ")
        match mark:
            case "$" | "GET":
                found.append(Step(line))
            case "=":
                found[-1].code = int(rest)
            case ">":
                found[-1].said.append(rest)
            case "!":
                found[-1].unsaid.append(rest)
            case _:
                assert mark == "#", line
    return found


def walk(text: str, shell: Shell, service: TestClient) -> None:
    """Takes the steps of a walk; `{home}` and `{recorded}` are folders of the shell."""
    for step in steps(text):
        action = step.action.format(home=shell.home, recorded=shell.home / "recorded")
        if action.startswith("GET "):
            answered = service.get(action.removeprefix("GET "))
            said, code, usual = answered.text, answered.status_code, 200
        else:
            ran = shell(*shlex.split(action)[2:])
            said, code, usual = ran.out + ran.err, ran.code, 0
        assert code == (usual if step.code is None else step.code), f"{action}\n{said}"
        flat = " ".join(said.split())
        for words in step.said:
            assert words in flat, f"{action}: no {words!r} in\n{said}"
        for words in [*step.unsaid, "Traceback"]:
            assert words not in flat, f"{action}: {words!r} in\n{said}"
