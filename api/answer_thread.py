"""Answers from memory on granian's Python thread, without waking the event loop.

granian reads and writes in one thread and calls Python in a second, which hands each request to a third, the event
loop's. Requests that arrive together share these hand-overs. A request that arrives alone pays for six switches of
threads, which take as long as its answer.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias

from granian._futures import _cbsched_aioschedule
from granian._granian import CallbackScheduler
from granian.server import embed
from starlette.types import Message, Scope

#: Answers a request through an ASGI `send` that need not be awaited, or returns False and leaves it to the event loop.
AnswerNow: TypeAlias = Callable[[Scope, Callable[[Message], object]], bool]
_log = logging.getLogger("gemmtune.api")


class _Exchange(Protocol):
    """A request's ASGI `receive` and `send`."""

    def send(self, message: Message) -> object: ...


class _Watcher(Protocol):
    """A request as granian's Python thread gets it; `done` has to be called once it is answered."""

    scope: Scope
    proto: _Exchange

    def done(self) -> None: ...


def install(answer_now: AnswerNow) -> None:
    """Lets granian ask `answer_now` first, in servers that start from now on."""
    # granian's stubs leave out most of its own scheduler.
    make: Any = CallbackScheduler

    def scheduler(loop: AbstractEventLoop, callback: Callable[..., Any], **_: object) -> CallbackScheduler:
        made: Any = make(loop, callback, None, partial(_enter_task, loop), partial(_leave_task, loop))
        later = _cbsched_aioschedule(loop, made._ctx, callback)  # type: ignore[no-untyped-call]
        made._schedule_fn = _schedule(answer_now, later)
        return made  # type: ignore[no-any-return]

    # granian has no public way to see a request before the event loop does.
    embed._new_cbscheduler = scheduler  # type: ignore[attr-defined, assignment]


def _schedule(answer_now: AnswerNow, later: Callable[[_Watcher], None]) -> Callable[[_Watcher], None]:
    """granian calls the result with each request, in its Python thread."""

    def schedule(watcher: _Watcher) -> None:
        try:
            answered = answer_now(watcher.scope, watcher.proto.send)
        except Exception:
            _log.exception("no answer from memory: the event loop answers")
            answered = False
        if answered:
            watcher.done()
        else:
            later(watcher)

    return schedule
