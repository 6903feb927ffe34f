"""Runs the service in this process."""

from __future__ import annotations

import gc
import socket
import sys
import threading
from pathlib import Path
from types import FrameType

import uvicorn

from api import logs
from api.access import AccessPolicy
from api.app import create_app
from tuner.errors import SettingsError
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import TIMING, Timing
from tuner.fleet.campaigns.sweep import Maintenance

#: Longer than our own clients wait between two requests.
_KEEP_ALIVE_SECONDS = 75
#: Requests in progress get this long to finish when the service is told to stop.
_GRACE_SECONDS = 30
#: Thresholds of the garbage collector. Reference counting frees most of what a request allocates, while a collection of
#: the oldest generation traverses the state of thousands of connections and stalls every request.
_GC_THRESHOLDS = (10_000, 20, 20)


class Server(uvicorn.Server):
    """A uvicorn server that shuts down gracefully: it answers requests in progress and ends open streams.

    Args:
        stopping: set on the first signal, so that event streams end instead of holding up the shutdown.
    """

    def __init__(self, config: uvicorn.Config, stopping: threading.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal stops the service gracefully, the second one at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._stopping.set()


def serve(
    store: Store, host: str, port: int, access: AccessPolicy, models: Path | None = None, timing: Timing = TIMING
) -> None:
    """Serves until interrupted or terminated, and answers requests in progress before it returns.

    Args:
        timing: intervals of workers and rounds.

    Raises:
        SettingsError: the address is taken or not available.
    """
    listener = listen(host, port)
    logs.configure()
    app = create_app(store, access, sys.stderr, models, timing)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        # A caller's address is its socket's; forwarding headers are unauthenticated.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    # Everything allocated so far lives as long as the process. Traversing it would stall all requests for a sixth of a
    # second every few seconds.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    with Maintenance(store, timing):
        Server(config, app.state.stopping).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, opened first so that a taken port is reported before anything starts.

    Raises:
        SettingsError: the address is taken or not available.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SettingsError(f"can't listen on {host}:{port} ({error.strerror}): choose another --port") from error
