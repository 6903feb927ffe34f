"""Running the service in this process."""

from __future__ import annotations

import gc
import socket
import sys
import threading
from pathlib import Path
from types import FrameType

import uvicorn

from api import logs
from api.access import Access
from api.app import create_app
from tuner.errors import SettingsError
from tuner.evidence.store import Store
from tuner.fleet.campaigns.maintenance import Maintenance
from tuner.fleet.campaigns.records import TIMING, Timing

#: Longer than any client of ours waits between two requests of a long poll.
_KEEP_ALIVE_SECONDS = 75
#: What may still be under way when the service is told to stop.
_GRACE_SECONDS = 30
#: Objects made, and collections of each younger generation, before the next one. Most of what a request makes goes by
#: itself; each collection of the oldest generation goes through what thousands of connections keep, and nobody is
#: answered meanwhile.
_GARBAGE = (10_000, 20, 20)


class Server(uvicorn.Server):
    """Stops when it is told to: what is under way is answered, what waits is told, and the process ends well.

    Args:
        stopping: set at once, so that long polls and event streams end instead of being waited for.
    """

    def __init__(self, config: uvicorn.Config, stopping: threading.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal stops the service, a second one doesn't wait for anybody."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._stopping.set()


def serve(
    store: Store, host: str, port: int, access: Access, models: Path | None = None, timing: Timing = TIMING
) -> None:
    """Serves until interrupted or terminated; what is under way then is answered first.

    Args:
        timing: of workers and rounds.

    Raises:
        SettingsError: the address can't be listened on.
    """
    listener = listen(host, port)
    logs.configure()
    app = create_app(store, access, sys.stderr, models, timing)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        # A caller's address is the one that connects; what a header says of it proves nothing.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    # What is there now stays for good: the garbage collector would go through all of it every few seconds, for a sixth
    # of a second each time, and nobody would be answered meanwhile.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    with Maintenance(store, timing):
        Server(config, app.state.stopping).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, so that a taken port is told before anything starts.

    Raises:
        SettingsError: the address can't be listened on.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SettingsError(f"{host}:{port} can't be listened on ({error.strerror}): give another --port") from error
