"""Runs the service in this process.

granian (hyper, in Rust) parses requests in a thread of its own, so that a flood of bytes takes no time from Python. It
limits the size and the number of headers, the time until a head is complete, and the number of connections. The
listening socket limits what the kernel keeps for a client, and for how long. docs/limits.md lists all limits.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

import uvloop
from fastapi import FastAPI
from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server import embed

from api import answer_thread, logs
from api.access import AccessPolicy
from api.app import create_app
from tuner.answering.answers import ExactBests
from tuner.errors import SettingsError
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import TIMING, Timing
from tuner.fleet.campaigns.sweep import Maintenance

#: A head, or the part of a body that waits for the application, may have this many bytes. hyper allows 100 headers.
HEAD_BYTES: Final = 64 * 1024
#: A connection is closed when it has sent no complete head for this long; also the longest pause between two requests.
HEAD_SECONDS: Final = 20
#: A connection whose client reads nothing for this long is closed by the kernel.
_WRITE_SECONDS: Final = 20
#: Further connections wait in the backlog, so that file descriptors remain for the store.
_MOST_CONNECTIONS: Final = 8_192
_OTHER_FILES: Final = 512
_BACKLOG: Final = 2_048
#: What the kernel buffers for one connection in each direction.
_SOCKET_BYTES: Final = 256 * 1024
#: Requests in progress get this long to finish when the service is told to stop.
_GRACE_SECONDS: Final = 30
#: Thresholds of the garbage collector. Reference counting frees most of what a request allocates, while a collection of
#: the oldest generation traverses the state of thousands of connections and stalls every request.
_GC_THRESHOLDS: Final = (10_000, 20, 20)
#: Threads that compute give way to the event loop after this time. A request needs Python several times, and may have
#: to wait each time.
_SWITCH_SECONDS: Final = 0.0002


class Server(embed.Server):
    """granian on a socket that is already open.

    Args:
        listener: granian takes over its descriptor, and closes it at the end.
    """

    def __init__(self, app: FastAPI, listener: socket.socket) -> None:
        host, port, *_ = listener.getsockname()
        super().__init__(
            app,
            host,
            port,
            interface=Interfaces.ASGI,
            http=HTTPModes.http1,
            websockets=False,
            backlog=_BACKLOG,
            backpressure=most_connections(),
            http1_settings=HTTP1Settings(header_read_timeout=HEAD_SECONDS * 1000, max_buffer_size=HEAD_BYTES),
            log_enabled=False,
        )
        self._listener = listener

    def _init_shared_socket(self) -> None:
        # granian's own socket would share its port with every process that asks for the same one.
        holder = SocketHolder(self._listener.detach(), False, _BACKLOG)  # type: ignore[call-arg]
        self._ssp, self._shd = None, holder  # type: ignore[assignment]


def serve(
    store: Store, listener: socket.socket, access: AccessPolicy, models: Path | None = None, timing: Timing = TIMING,
    recordings: ExactBests | None = None,
    beside: Callable[[FastAPI], AbstractContextManager[object]] = nullcontext,
) -> None:  # fmt: skip
    """Serves until interrupted or terminated, and answers requests in progress before it returns.

    Args:
        listener: of `listen`.
        timing: intervals of workers and rounds.
        recordings: bests of recordings, which answer if the store lacks a problem.
        beside: what runs in this process as long as the service does.
    """
    logs.configure()
    app = create_app(store, access, sys.stderr, models, timing, recordings)
    # Everything allocated so far lives as long as the process. Traversing it would stall all requests for a sixth of a
    # second every few seconds.
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_SECONDS)
    answer_thread.install(app.state.answer_now)
    with (
        Maintenance(store, timing), beside(app), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):  # fmt: skip
        runner.run(_until_told(Server(app, listener), app.state.stopping))


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, opened first so that a taken port is reported before anything starts.

    Its options pass to the connections that it accepts.

    Raises:
        SettingsError: the address is taken or not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingsError(
            f"can't listen on {host}:{port} ({error.strerror}): choose another --host or --port"
        ) from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _WRITE_SECONDS * 1000)
    for direction in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        listener.setsockopt(socket.SOL_SOCKET, direction, _SOCKET_BYTES)
    return listener


def most_connections() -> int:
    """Connections that are served at once: as many as the process may have, up to a limit."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    return _MOST_CONNECTIONS if most_files < 0 else min(_MOST_CONNECTIONS, max(most_files - _OTHER_FILES, 1))


async def _until_told(server: Server, stopping: threading.Event) -> None:
    """Serves until a signal; then requests in progress are answered, unless they take too long or a second one comes.

    Args:
        stopping: set on the first signal, so that event streams end instead of holding up the shutdown.
    """
    loop = asyncio.get_running_loop()
    serving = loop.create_task(server.serve())

    def end() -> None:
        # granian still ends what was cancelled, which asyncio would print with a traceback.
        loop.set_exception_handler(_except_for_what_was_cancelled)
        serving.cancel()

    def stop() -> None:
        if stopping.is_set():
            end()
        stopping.set()
        server.stop()  # type: ignore[no-untyped-call]
        loop.call_later(_GRACE_SECONDS, end)

    for told in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(told, stop)
    with suppress(asyncio.CancelledError):
        await serving


def _except_for_what_was_cancelled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Reports what fails in the event loop, as by default."""
    if not isinstance(context.get("exception"), asyncio.InvalidStateError):
        loop.default_exception_handler(context)
