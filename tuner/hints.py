"""Commands that are told to people: what they may type next."""

from __future__ import annotations

from space.problem import Problem


def flags_of(problem: Problem) -> str:
    """What names a problem on the command line beside its shape; empty where all of it is the default."""
    given = {
        "dtype": problem.dtype, "layout": problem.layout, "batch": str(problem.batch), "epilogue": problem.epilogue,
    }  # fmt: skip
    usual = {"dtype": "bf16", "layout": "nt", "batch": "1", "epilogue": "none"}
    return "".join(f" --{name} {value}" for name, value in given.items() if value != usual[name])


def tune_command(problem: Problem) -> str:
    """The command that measures a problem."""
    return f"gemmtune tune {problem.shape}{flags_of(problem)}"
