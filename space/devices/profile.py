"""DeviceProfile: everything known of one GPU, each figure with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from space.arch import Arch


@dataclass(frozen=True, slots=True, eq=False)
class DeviceProfile:
    """What rules, estimates and answers know about a device. Resolve it once and hand it down.

    A profile equals only itself: `profile_named` returns the same object for the same name.

    Attributes:
        name: the device's identity (see `space.devices.resolve.identity_of`): the driver's name, with a suffix if the
            card differs from others of that name.
        arch: compile target; its limits per block and multiprocessor are the device's.
        compute_capability: as the driver reports it, `(9, 0)`.
        sm_count: enabled multiprocessors.
        l2_bytes, memory_bytes: capacities.
        power_w: board power limit.
        clock_ghz: multiprocessor clock under sustained tensor load.
        highest_clock_ghz: multiprocessor clock below the power limit.
        memory_tbs: peak rate of device memory, in 10^12 bytes per second.
        hbm_tbs, hbm_read_tbs: rates that copying and reading kernels reach.
        l2_tbs: rate at which kernels read L2.
        tensor_tflops: dense rate by dtype of A, as a short burst on random data reaches it: a bound, not a promise.
        tensor_flops_per_clock: 16-bit operations that the tensor cores of one multiprocessor finish per clock.
        launch_us: time of an almost empty kernel inside a CUDA graph.
        resident_clusters: clusters of 1, 2, 4 … blocks that run at once, one block per multiprocessor. Clusters
            stay within a GPC and GPCs differ in size, so larger clusters leave multiprocessors idle.
        sources: source of each figure by field name: `driver`, `measured: …`, `estimated: …`, or a document.
    """

    name: str
    arch: Arch
    compute_capability: tuple[int, int]
    sm_count: int
    l2_bytes: int
    memory_bytes: int
    power_w: float
    clock_ghz: float
    highest_clock_ghz: float
    memory_tbs: float
    hbm_tbs: float
    hbm_read_tbs: float
    l2_tbs: float
    tensor_tflops: Mapping[str, float]
    tensor_flops_per_clock: int
    launch_us: float
    resident_clusters: Mapping[int, int]
    sources: Mapping[str, str]

    @property
    def measured(self) -> bool:
        """Whether the rates behind estimates were measured on cards of this identity."""
        return self.sources["tensor_tflops"].startswith("measured")

    def peak_tflops(self, dtype: str) -> float:
        """Dense rate for operands of `dtype`; the bf16 rate if the card has no rate for it."""
        return self.tensor_tflops.get(dtype, self.tensor_tflops["bf16"])

    def cluster_slots(self, size: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Clusters of `size` blocks that run at once, one block per multiprocessor, for each row.

        A size without an entry leaves as many multiprocessors idle as the next smaller one.
        """
        known = np.array(sorted(self.resident_clusters))
        held = np.array([self.resident_clusters[each] for each in known])
        below = np.searchsorted(known, size, side="right") - 1
        slots: npt.NDArray[np.int64] = np.maximum(held[below] * known[below] // size, 1)
        return slots
