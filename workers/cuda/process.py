"""Entry of the process that owns the GPU: answers documents until the pipe ends.

python -m workers.cuda.process ORDINAL CACHE_DIR READ_FD WRITE_FD
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from space.config import parse_knobs
from space.family import family_named
from space.problem import Problem
from workers.build import nvrtc_version
from workers.cuda.bench import Bench
from workers.cuda.driver import CudaError
from workers.cuda.framing import Hangup, receive, send
from workers.errors import WorkerError
from workers.measurement import Measurement, Policy, to_json

_PR_SET_PDEATHSIG = 1


def main(ordinal: int, cache_dir: Path, read_fd: int, write_fd: int) -> None:
    """Answers until the parent hangs up. A lost context ends the process: only a new one helps."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    bench: Bench | None = None
    while True:
        try:
            question = receive(read_fd)
        except Hangup:
            return
        try:
            bench = bench or Bench(ordinal, cache_dir)
            answer = _answer(bench, question)
        except WorkerError as error:
            answer = {"error": str(error), "kind": type(error).__name__}
        except CudaError as error:
            answer = {"error": str(error), "kind": "CudaError", "name": error.name, "lost": error.sticky}
        send(write_fd, answer)
        if answer.get("lost"):
            os._exit(1)


def _answer(bench: Bench, question: dict[str, Any]) -> dict[str, Any]:
    match question["do"]:
        case "hello":
            version = bench.library.version if bench.library else ""
            notices = [*bench.monitor.others(), *filter(None, [bench.library_missing])]
            return {"facts": json.loads(to_json(bench.facts)), "cublaslt": version, "nvrtc": nvrtc_version(),
                    "notices": notices}  # fmt: skip
        case "prepare":
            bench.prepare(Problem.from_key(question["problem"]), question["seed"])
            return {}
        case "screen":
            return _json(bench.screen(_config(question), question["digest"], Policy(question["policy"])))
        case "arm":
            return {"reason": bench.add_arm(_config(question), question["digest"])}
        case "library":
            bench.add_library_arms()
            return {}
        case "rounds":
            finals = bench.finals(question["rounds"], Policy(question["policy"]))
            return {"measurements": [_json(final) for final in finals]}
        case "drop":
            bench.drop_arms()
            return {}
        case unknown:
            return {"error": f"{unknown!r} is no question", "kind": "ProcessError"}


def _config(question: dict[str, Any]) -> Any:  # noqa: ANN401
    return family_named(question["family"]).config(parse_knobs(question["knobs"]))


def _json(measurement: Measurement) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(to_json(measurement))
    return document


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
