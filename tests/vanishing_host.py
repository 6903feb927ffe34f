"""A database host that vanishes without closing a connection, in network namespaces; prints what its client met.

    unshare -n python -m tests.vanishing_host SOCKET_FOLDER DATABASE

The host is a relay to PostgreSQL's socket in a namespace of its own. Another one takes its address later.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Final

from tuner.errors import StoreError
from tuner.evidence import postgresql
from tuner.evidence.store import Store

CLIENT: Final = "10.99.0.1"
HOST: Final = "10.99.0.2"
PORT: Final = 5432
#: In proportion to those of a service, so that a test need not wait as long.
TCP: Final = {"keepalives_idle": 1, "keepalives_interval": 1, "keepalives_count": 2, "tcp_user_timeout": 3_000}


class Host:
    """A host in its own namespace, connected with ours by a cable of this name."""

    def __init__(self, folder: str, cable: str) -> None:
        command = ["unshare", "-n", sys.executable, "-m", "tests.vanishing_host", "--relay", folder]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.told("ready")
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(self._process.pid))
        _ip("link", "set", cable, "up")
        # A new host has another hardware address.
        _ip("route", "replace", HOST, "dev", cable, "src", CLIENT)
        _ip("neigh", "flush", "all")
        self.tell("listen")
        self.told("listening")

    def vanish(self) -> None:
        """From now on it neither answers nor refuses."""
        self.tell("vanish")
        self.told("vanished")

    def end(self) -> None:
        """Ends its relay."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def tell(self, word: str) -> None:
        """Sends the relay a word."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def told(self, word: str) -> None:
        """Waits until the relay says a word."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == word


def relay(folder: str) -> None:
    """The host: forwards connections to the server's socket, and does what it is told."""
    _say("ready")
    for line in sys.stdin:
        if line.strip() == "vanish":
            _ip("link", "set", "eth0", "down")
            _say("vanished")
            continue
        _ip("addr", "add", f"{HOST}/24", "dev", "eth0")
        _ip("link", "set", "eth0", "up")
        _ip("route", "replace", CLIENT, "dev", "eth0")
        listener = socket.create_server((HOST, PORT))
        threading.Thread(target=_accept, args=(listener, f"{folder}/.s.PGSQL.{PORT}"), daemon=True).start()
        _say("listening")


def _accept(listener: socket.socket, path: str) -> None:
    while True:
        near, _ = listener.accept()
        far = socket.socket(socket.AF_UNIX)
        far.connect(path)
        for pair in ((near, far), (far, near)):
            threading.Thread(target=_forward, args=pair, daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def main(folder: str, database: str) -> None:
    """Cuts a statement off, then lets another host take over."""
    _ip("addr", "add", f"{CLIENT}/32", "dev", "lo")
    _ip("link", "set", "lo", "up")
    postgresql._TCP.update(TCP)
    old = Host(folder, "cable-a")
    url = f"postgresql+psycopg://postgres@{HOST}:{PORT}/{database}"
    with Store.open(url) as store:
        with store.transaction(slow=True) as session:
            idle = session.connection().exec_driver_sql("SELECT 1").scalar() == 1
        threading.Timer(0.5, old.vanish).start()
        began, said = time.monotonic(), ""
        try:
            with store.transaction(slow=True) as session:
                # Its answer would not come before the host vanishes, however late that is.
                session.connection().exec_driver_sql("SELECT pg_sleep(60)")
        except StoreError as error:
            said = str(error)
        noticed = time.monotonic() - began - 0.5
        new = Host(folder, "cable-b")
        began = time.monotonic()
        while True:
            with suppress(StoreError):
                store.changed()
                break
        back = time.monotonic() - began
    for host in (old, new):
        host.end()
    json.dump({"idle": idle, "said": said, "noticed_seconds": noticed, "back_seconds": back}, sys.stdout)


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


if __name__ == "__main__":
    if sys.argv[1] == "--relay":
        relay(sys.argv[2])
    else:
        main(*sys.argv[1:])
