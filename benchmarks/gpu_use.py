"""How busy GPUs are while something runs, as the driver counts it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from types import TracebackType
from typing import Self


class GpuUse:
    """Asks `nvidia-smi` every second between `__enter__` and `__exit__`.

    Args:
        gpus: how many are looked at, from the first on; 0 asks nothing.
    """

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._process: subprocess.Popen[bytes] | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `__exit__`)

    def __enter__(self) -> Self:
        if self._gpus and shutil.which("nvidia-smi"):
            command = ["nvidia-smi", "--query-gpu=index,utilization.gpu", "--format=csv,noheader,nounits", "-l", "1"]
            self._process = subprocess.Popen(command, stdout=self._said, stderr=subprocess.DEVNULL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def share(self) -> float | None:
        """Of the time so far, how much a kernel ran, over all of them; None where nobody can tell."""
        if self._process is None:
            return None
        self._said.seek(0)
        return mean_share(self._said.read().decode(), self._gpus)


def mean_share(said: str, gpus: int) -> float | None:
    """The mean of lines such as `0, 87`, in the first `gpus` GPUs; None without any."""
    shares: list[float] = []
    for line in said.splitlines():
        index, _, percent = line.partition(",")
        if index.strip().isdigit() and percent.strip().isdigit() and int(index) < gpus:
            shares.append(int(percent) / 100)
    return sum(shares) / len(shares) if shares else None
