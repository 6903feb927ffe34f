"""Entry of the process that owns the GPU: answers documents in order until the pipe closes.

python -m workers.cuda.process ORDINAL CACHE_DIR [MODULE ...] READ_FD WRITE_FD

Questions may be sent ahead: while the GPU works on one candidate, the next one is made ready.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from space.config import Config
from space.family import family_named
from space.kind import problem_from_key
from workers.build import nvrtc_version
from workers.cuda.bench import Bench, Loaded, Ready
from workers.cuda.driver import CudaError
from workers.cuda.finals import Finals
from workers.errors import WorkerError
from workers.framing import Hangup, arrived, receive, send
from workers.measurement import Measurement, Outcome, to_json

#: Measured candidates are freed in batches of this size, since unloading waits for the GPU.
_UNLOAD_AT_ONCE: Final = 16

Question = dict[str, Any]


class Inbox:
    """Questions from the parent, in order."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._held: Question | None = None

    def take(self) -> Question:
        """The next question; waits for it.

        Raises:
            Hangup: the parent is gone.
        """
        held, self._held = self._held, None
        return held if held is not None else receive(self._fd)

    def take_screen(self) -> Question | None:
        """The next question, if it has arrived and asks for a screening."""
        return self.take() if self.coming_screen() else None

    def coming_screen(self) -> Question | None:
        """The same, without taking it."""
        if self._held is None and arrived(self._fd):
            self._held = receive(self._fd)
        return self._held if self._held is not None and self._held["do"] == "screen" else None


@dataclass
class Failed:
    """A candidate that could not be made ready; reported in its turn, so that answers stay in order."""

    config: Config
    digest: str
    error: CudaError | WorkerError


class Screenings:
    """A run of screenings, each candidate made ready while the one before it is on the GPU.

    Loading a program waits for the GPU. It is done while the candidate before is verified, where this process waits
    for the GPU anyway, and not for long. Recording, which takes milliseconds for tiny operands, is done while the GPU
    rests before that candidate is timed, and so is the part of the following candidate's loading that needs no GPU.

    Where the next candidate is ready, an answer is sent after that one has started: the GPU does not wait for the pipe.
    """

    def __init__(self, bench: Bench, inbox: Inbox, reply: Callable[[dict[str, Any]], None]) -> None:
        self._bench, self._inbox, self._reply = bench, inbox, reply
        self._loaded: Loaded | Failed | None = None
        self._next: Ready | Failed | None = None
        self._done: list[Ready] = []
        self._unsent: Measurement | None = None

    def run(self, question: Question) -> None:
        """Answers `question` and the screenings that have arrived behind it.

        Raises:
            CudaError: the context is lost; the candidate that was on the GPU has no answer yet.
            WorkerError: a candidate can't be loaded for a reason that is not its own; it has no answer yet.
        """
        self._load(question)
        try:
            while (current := self._taken()) is not None:
                try:
                    measured = self._measured(current)
                finally:
                    self._send()
                self._unsent = measured
                self._retire(current)
        finally:
            self._discard()

    def _taken(self) -> Ready | Failed | None:
        """The next candidate, made ready; None when no further one has arrived."""
        if self._next is None:
            self._send()
            self._load_next()
            self._record_next()
        taken, self._next = self._next, None
        return taken

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, None
        if unsent is not None:
            self._reply(_json(unsent))

    def _measured(self, current: Ready | Failed) -> Measurement:
        if isinstance(current, Failed):
            if isinstance(current.error, WorkerError) or current.error.sticky:
                raise current.error
            reason = str(current.error)
            return self._bench.failure(current.config, current.digest, Outcome.LAUNCH, reason)
        try:
            return self._bench.screen(current, self._begun, self._meanwhile)
        except CudaError as error:
            if error.sticky:
                raise
            return self._bench.outcome(current, Outcome.LAUNCH, str(error))

    def _begun(self) -> None:
        self._send()
        self._load_next()

    def _meanwhile(self) -> None:
        self._load_next()
        self._record_next()
        for done in self._done:
            done.rest()
        if coming := self._inbox.coming_screen():
            self._bench.foresee(_config(coming), coming["digest"])

    def _load_next(self) -> None:
        if self._loaded is None and (waiting := self._inbox.take_screen()):
            self._load(waiting)

    def _load(self, question: Question) -> None:
        asked = _config(question), question["digest"]
        try:
            self._loaded = self._bench.load(*asked)
        except (CudaError, WorkerError) as error:
            # A context that the candidate on the GPU lost shows here first, but that candidate is reported first.
            self._loaded = Failed(*asked, error)

    def _record_next(self) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is None or isinstance(loaded, Failed):
            self._next = loaded
            return
        try:
            self._next = self._bench.record(loaded)
        except CudaError as error:
            self._next = Failed(loaded.config, loaded.digest, error)

    def _retire(self, current: Ready | Failed) -> None:
        if not isinstance(current, Failed):
            self._done.append(current)
        if len(self._done) >= _UNLOAD_AT_ONCE:
            # Send the answer first: unloading takes a while.
            self._send()
            self._discard()

    def _discard(self) -> None:
        for done in self._done:
            done.discard()
        self._done = []


def main(ordinal: int, cache_dir: Path, read_fd: int, write_fd: int, modules: Sequence[str] = ()) -> None:
    """Answers until the parent hangs up. A lost context ends the process: only a new one helps.

    Args:
        modules: modules outside of this package whose import registers families and problem kinds.
    """
    for module in modules:
        import_module(module)
    inbox = Inbox(read_fd)
    dispatcher: Dispatcher | None = None
    while True:
        try:
            question = inbox.take()
        except Hangup:
            return
        try:
            if dispatcher is None:
                dispatcher = Dispatcher(Bench(ordinal, cache_dir), inbox, lambda answer: send(write_fd, answer))
                # What exists now stays alive: scanning it for garbage would take tens of milliseconds each time.
                gc.freeze()
            dispatcher.answer(question)
        except Hangup:
            return
        except WorkerError as error:
            send(write_fd, {"error": str(error), "kind": type(error).__name__})
        except CudaError as error:
            send(write_fd, {"error": str(error), "kind": "CudaError", "name": error.name, "lost": error.sticky})
            if error.sticky:
                os._exit(1)


class Dispatcher:
    """Answers questions, each by what it asks to do."""

    def __init__(self, bench: Bench, inbox: Inbox, reply: Callable[[dict[str, Any]], None]) -> None:
        self._bench, self._inbox, self._reply = bench, inbox, reply
        self._finals = Finals(bench)

    def answer(self, question: Question) -> None:
        """Replies to one question, or to a run of screenings.

        Raises:
            WorkerError: this machine can't do it.
            CudaError: the driver refuses, or the context is lost.
        """
        if question["do"] == "screen":
            Screenings(self._bench, self._inbox, self._reply).run(question)
        else:
            self._reply(self._answer(question))

    def _answer(self, question: Question) -> dict[str, Any]:
        bench, finals = self._bench, self._finals
        match question["do"]:
            case "hello":
                return _hello(bench)
            case "prepare":
                finals.drop()
                bench.prepare(problem_from_key(question["problem"]), question["seed"])
                named = {"baselines": bench.baselines, "unlisted": bench.unlisted()}
                return {name: [config.key for config in configs] for name, configs in named.items()}
            case "arm":
                return {"reason": finals.add(_config(question), question["digest"])}
            case "baselines":
                finals.add_baselines()
                return {}
            case "finals":
                return {"measurements": [_json(final) for final in finals.run(question["turns"])]}
            case "drop":
                finals.drop()
                return {}
            case "busy":
                return {"busy_us": bench.busy_us}
            case unknown:
                return {"error": f"{unknown!r} is not a question", "kind": "ProcessError"}


def _hello(bench: Bench) -> dict[str, Any]:
    libraries = bench.libraries
    notices = [*bench.monitor.others(), *(library.missing for library in libraries.values() if library.missing)]
    versions = {name: library.version for name, library in libraries.items()} | {"nvrtc": nvrtc_version()}
    return {"facts": _json(bench.facts), "libraries": versions, "notices": notices}


def _config(question: Question) -> Config:
    return family_named(question["family"]).parse(question["knobs"])


def _json(value: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(to_json(value))
    return document


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[-2]), int(sys.argv[-1]), sys.argv[3:-2])
