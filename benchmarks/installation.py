"""A `gemmtune` installation: each command in its own process, with settings, logs and tokens in one folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.ports import free_port


class Installation:
    """Services and their workers, not running yet.

    Args:
        folder: holds logs, builds, models and the token.
        database: SQLAlchemy's URL.
        recorded: folder of recordings; by default in `folder`.
        services: how many services there may be.
        front: URL that workers use; by default the first service's.

    Attributes:
        ports: of the services.
        url: of the first one.
    """

    def __init__(
        self, folder: Path, database: str, heartbeat_seconds: float, round_seconds: float, recorded: Path | None = None,
        services: int = 1, front: str = "",
    ) -> None:  # fmt: skip
        self._folder, self.ports = folder, [free_port() for _ in range(services)]
        self.url = f"http://127.0.0.1:{self.ports[0]}"
        self._settings = {
            "GEMMTUNE_DB": database, "GEMMTUNE_RECORDED_DIR": str(recorded or folder / "recorded"),
            "GEMMTUNE_CACHE_DIR": str(folder / "cache"), "GEMMTUNE_MODEL_DIR": str(folder / "models"),
            "GEMMTUNE_URL": front or self.url, "GEMMTUNE_TOKEN_FILE": str(folder / "token"),
            "GEMMTUNE_HEARTBEAT_SECONDS": str(heartbeat_seconds), "GEMMTUNE_ROUND_SECONDS": str(round_seconds),
        }  # fmt: skip

    def make_token(self) -> None:
        """A token with scope `work`.

        Raises:
            RuntimeError: the command failed; the message is its output.
        """
        command = self._words("token", "create", "fleet", "-s", "work")
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise RuntimeError(f"gemmtune token create ended with {made.returncode}: {made.stderr}")
        (self._folder / "token").write_text(made.stdout.strip())

    def start_service(self, place: int = 0) -> subprocess.Popen[bytes]:
        """`gemmtune serve` on one of the ports."""
        return self._start("service", "serve", "--port", str(self.ports[place]))

    def start_worker(self, *devices: str) -> subprocess.Popen[bytes]:
        """`gemmtune worker run` on these devices."""
        return self._start("worker", "worker", "run", *(word for name in devices for word in ("--device", name)))

    def _start(self, log: str, *words: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{log}.log").open("ab") as file:
            return subprocess.Popen(self._words(*words), stdout=file, stderr=file, stdin=subprocess.DEVNULL)

    def _words(self, *words: str) -> list[str]:
        settings = [f"{name}={value}" for name, value in self._settings.items()]
        return ["env", *settings, sys.executable, "-m", "gemmtune", *words]
