"""Running the service in this process."""

from __future__ import annotations

import socket

import uvicorn

from api.app import create_app
from tuner.errors import SettingsError
from tuner.store.store import Store


def serve(store: Store, host: str, port: int) -> None:
    """Serves until interrupted.

    Raises:
        SettingsError: the address can't be listened on.
    """
    listener = listen(host, port)
    config = uvicorn.Config(create_app(store), log_level="info", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, so that a taken port is told before anything starts.

    Raises:
        SettingsError: the address can't be listened on.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SettingsError(f"{host}:{port} can't be listened on ({error.strerror}): give another --port") from error
