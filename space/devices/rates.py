"""Rates measured on real cards, and the shares of datasheet rates that other cards are assumed to reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class MeasuredRates:
    """Sustained figures of one card, on random data; see `DeviceProfile` for the meaning of each."""

    tensor_tflops: dict[str, float]
    hbm_tbs: float
    hbm_read_tbs: float
    l2_tbs: float
    clock_ghz: float
    launch_us: float
    resident_clusters: dict[int, int]
    source: str


#: The bf16 rate is that of short bursts, so that the roofline bound is a bound. Clusters of four: in the recordings,
#: 30, 60, 90 and 120 of them take one, two, three and four waves; 32, 64, 96 and 128 take one wave more.
H200: Final = MeasuredRates(
    tensor_tflops={"bf16": 790.0, "fp16": 790.0, "tf32": 430.0, "fp8_e4m3": 1450.0, "fp8_e5m2": 1450.0,
                   "int8": 1450.0},
    hbm_tbs=4.0, hbm_read_tbs=4.6, l2_tbs=9.7, clock_ghz=1.4, launch_us=2.2,
    resident_clusters={1: 132, 2: 66, 4: 30}, source="measured: docs/measuring.md",
)  # fmt: skip

MEASURED: Final[dict[str, MeasuredRates]] = {"NVIDIA H200": H200}

#: Share of its datasheet rates that a card without measured rates is assumed to reach: that of the H200.
TENSOR_SHARE: Final = {"bf16": 0.80, "fp16": 0.80, "tf32": 0.87, "fp8_e4m3": 0.73, "fp8_e5m2": 0.73, "int8": 0.73}
COPY_SHARE, READ_SHARE, CLOCK_SHARE = 0.83, 0.96, 0.71
#: Bytes per clock that a multiprocessor reads from L2, and the share of multiprocessors that clusters of four can use.
L2_BYTES_PER_CLOCK, CLUSTER_SHARE = 37.0, 0.91
LAUNCH_US: Final = 2.2
ESTIMATED: Final = "estimated: the share of its datasheet that the H200 reaches of its own"
