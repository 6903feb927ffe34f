"""CudaWorker: a GPU of this machine behind the worker port."""

from __future__ import annotations

from space.problem import Problem
from workers.cuda.gpu import GpuProcess
from workers.cuda.round import CudaRound


class CudaWorker(GpuProcess):
    """One GPU; see `workers.ports.Worker`."""

    def measurable(self, problem: Problem) -> None:
        """Any legal candidate can be measured."""
        return

    def begin(self, problem: Problem) -> CudaRound:
        """Prepares operands and reference.

        Raises:
            WorkerError: the problem does not fit the device's memory, or the device is lost.
        """
        round_ = CudaRound(self, problem)
        round_.prepare()
        return round_
