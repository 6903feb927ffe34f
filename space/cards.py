"""Known cards: datasheet figures with their sources, and rates that were measured on real cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from space.arch import ARCHS, Arch

#: Suffix of the dtype word of a problem with f16 sums.
HALF_SUMS: Final = "_acc16"


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU model as it is sold.

    Attributes:
        arch: compile target to use on it.
        sm_count: enabled multiprocessors.
        l2_bytes, memory_bytes: capacities.
        memory_tbs: peak rate of device memory, in 10^12 bytes per second.
        boost_ghz: highest multiprocessor clock.
        power_w: default board power limit.
        tensor_tflops: dense peak by dtype of A, with f32 sums for floating point and s32 sums for int8; with f16 sums
            under the dtype's name and `HALF_SUMS`, where that rate differs.
        sources: document of each figure by field name.
        aliases: other names that people and vendors use.
    """

    arch: str
    sm_count: int
    l2_bytes: int
    memory_bytes: int
    memory_tbs: float
    boost_ghz: float
    power_w: float
    tensor_tflops: Mapping[str, float]
    sources: Mapping[str, str]
    aliases: tuple[str, ...] = ()


_FIGURES: Final = ("sm_count", "l2_bytes", "memory_bytes", "memory_tbs", "boost_ghz", "power_w", "tensor_tflops")


def _rates(bf16: float, tf32: float, int8: float, fp8: float | None = None) -> dict[str, float]:
    eight_bit = {} if fp8 is None else {"fp8_e4m3": fp8, "fp8_e5m2": fp8}
    return {"bf16": bf16, "fp16": bf16, "tf32": tf32, **eight_bit, "int8": int8}


def _geforce(bf16: float, tf32: float, int8: float, fp8: float | None = None) -> dict[str, float]:
    """Rates of a card on which f16 sums are twice as fast as f32 sums."""
    rates = _rates(bf16, tf32, int8, fp8)
    return rates | {dtype + HALF_SUMS: 2 * rate for dtype, rate in rates.items() if dtype.startswith(("fp16", "fp8"))}


def _card(
    arch: str, sm_count: int, l2_mib: float, memory_gib: float, memory_tbs: float, boost_ghz: float, power_w: float,
    rates: Mapping[str, float], /, *aliases: str, document: str, **other_sources: str,
) -> Card:  # fmt: skip
    """A card whose figures come from `document`, except those named in `other_sources`."""
    sources = {**dict.fromkeys(_FIGURES, document), **other_sources}
    return Card(arch, sm_count, int(l2_mib * 2**20), int(memory_gib * 2**30), memory_tbs, boost_ghz, power_w, rates,
                sources, aliases)  # fmt: skip


_LOG: Final = "public driver log"
_REPORTS: Final = "public reports of runs"
_A100: Final = "NVIDIA A100 datasheet and A100 Tensor Core GPU Architecture whitepaper"
_A30: Final = "NVIDIA A30 datasheet"
_A10: Final = "NVIDIA A10 datasheet"
_GA102: Final = "NVIDIA Ampere GA102 GPU Architecture whitepaper"
_ORIN: Final = "NVIDIA Jetson AGX Orin Series technical brief"
_ADA: Final = "NVIDIA Ada GPU Architecture whitepaper"
_L40S: Final = "NVIDIA L40S datasheet"
_L4: Final = "NVIDIA L4 datasheet"
_H100: Final = "NVIDIA H100 datasheet and H100 Tensor Core GPU Architecture whitepaper"
_H200: Final = "NVIDIA H200 datasheet"
_GH200: Final = "NVIDIA GH200 Grace Hopper Superchip datasheet"
_H20: Final = "NVIDIA HGX H20 figures as resellers print them; NVIDIA publishes no datasheet"
_HGX: Final = "NVIDIA HGX datasheet, rates without sparsity"
_RTX: Final = "NVIDIA RTX Blackwell GPU Architecture whitepaper"
_PRO: Final = "NVIDIA RTX PRO 6000 Blackwell datasheet"
_GB10: Final = "NVIDIA DGX Spark hardware overview"

_HALVED: Final = "GeForce halves products with f32 sums"
_HOPPER_PCIE_RATES: Final = f"{_H100}, half of its rates with sparsity"
_H20_RATES: Final = ("unconfirmed: resellers print 148 for bf16; a public benchmark measured 142; the 8-bit rates are "
                     "twice and tf32 half of it")  # fmt: skip
_MODULE_W: Final = "unconfirmed: public driver logs show 700 and 900 W; vendors set the limit of the module"
_SIX_STACKS_L2: Final = "unconfirmed: that of H200 and GH200, with six HBM stacks too; H100 NVL reports print 50 MB"
_HGX_TBS: Final = "unconfirmed: the HGX datasheet says 7.7 and said 8.0 before"

#: An RTX 5090's fp8 products with f32 sums and block scales; without block scales they run at half of this rate.
_SCALED_FP8: Final = {"fp8_e4m3": 838.0, "fp8_e5m2": 838.0}
_H100_RATES: Final = _rates(bf16=989.4, tf32=494.7, int8=1978.9, fp8=1978.9)
_NVL_RATES: Final = _rates(bf16=835.5, tf32=417.5, int8=1670.5, fp8=1670.5)
_A100_RATES: Final = _rates(bf16=312.0, tf32=156.0, int8=624.0)

#: Known cards by the name that their driver reports; the first of each arch stands for it. Capacities count in 2^30
#: bytes, as the GB of the datasheets do. `boost_ghz` is what CUDA reports: H100s state their rates at lower clocks.
CARDS: Final[dict[str, Card]] = {
    "NVIDIA H200": _card(
        "sm_90a", 132, 60, 141, 4.8, 1.98, 700, _H100_RATES, "H200 SXM", "H200 SXM5", "H200 141GB HBM3e",
        document=_H200, sm_count="its driver", l2_bytes="its driver", boost_ghz="its driver"),
    "NVIDIA H200 NVL": _card(
        "sm_90a", 132, 60, 141, 4.8, 1.785, 600, _NVL_RATES, "H200 PCIe", "H200 NVL 141GB",
        document=_H200, sm_count=_REPORTS, l2_bytes=_SIX_STACKS_L2, boost_ghz="unconfirmed: that of H100 NVL",
        power_w=_LOG, tensor_tflops=f"{_H200}, half of its rates with sparsity"),
    "NVIDIA H100 80GB HBM3": _card(
        "sm_90a", 132, 50, 80, 3.35, 1.98, 700, _H100_RATES, "H100 SXM", "H100 SXM5", "H100 SXM 80GB",
        "H100 SXM5 80GB", "H100-SXM5-80GB", document=_H100, l2_bytes=_LOG, boost_ghz=_REPORTS,
        tensor_tflops="derived: 132 SMs x 4,096 bf16 FLOP a clock x 1.83 GHz = 989.4, as the datasheet"),
    "NVIDIA H100 PCIe": _card(
        "sm_90a", 114, 50, 80, 2.039, 1.755, 350, _rates(bf16=756.5, tf32=378.0, int8=1513.0, fp8=1513.0),
        "H100 PCIe 80GB", "H100-PCIE-80GB", document=_H100, memory_tbs=f"{_H100}: 2 TB/s, in databases 2.039",
        boost_ghz="public databases", tensor_tflops=_HOPPER_PCIE_RATES),
    "NVIDIA H100 NVL": _card(
        "sm_90a", 132, 60, 94, 3.938, 1.785, 400, _NVL_RATES, "H100 NVL 94GB",
        document=_H100, sm_count=_REPORTS, l2_bytes=_SIX_STACKS_L2, boost_ghz=_REPORTS,
        power_w=f"{_LOG}; some boards come with 310 W",
        tensor_tflops=_HOPPER_PCIE_RATES),
    "NVIDIA H20": _card(
        "sm_90a", 78, 60, 96, 4.022, 1.98, 500, _rates(bf16=148.0, tf32=74.0, int8=296.0, fp8=296.0),
        "H20 SXM", "H20 96GB", document=_H20, sm_count=_LOG, memory_bytes=_LOG,
        l2_bytes=_REPORTS, boost_ghz="unconfirmed: that of H100 and H200 SXM",
        power_w=f"{_LOG}; resellers print 400 W", tensor_tflops=_H20_RATES),
    "NVIDIA GH200 480GB": _card(
        "sm_90a", 132, 60, 96, 4.02, 1.98, 700, _H100_RATES, "GH200 96GB", "GH200 96GB HBM3",
        document=_GH200, sm_count=_LOG, l2_bytes=_LOG, boost_ghz=_LOG, power_w=_MODULE_W,
        memory_tbs=f"derived: 2,619 MHz x 2 x 6,144 bits / 8 = 4.02, clock and width from a {_LOG}"),
    "NVIDIA GH200 144G HBM3e": _card(
        "sm_90a", 132, 60, 144, 4.9, 1.98, 700, _H100_RATES, "GH200 144GB", "GH200 144GB HBM3e",
        document=_GH200, sm_count=_LOG, l2_bytes=_LOG, boost_ghz=_LOG, power_w=_MODULE_W),
    "NVIDIA A100-SXM4-40GB": _card(
        "sm_80", 108, 40, 40, 1.555, 1.41, 400, _A100_RATES, "A100 40GB SXM", "A100 40GB SXM4", "A100 SXM4 40GB",
        "A100 SXM 40GB", document=_A100),
    "NVIDIA A100-SXM4-80GB": _card(
        "sm_80", 108, 40, 80, 2.039, 1.41, 400, _A100_RATES, "A100 80GB SXM", "A100 80GB SXM4", "A100 SXM4 80GB",
        "A100 SXM 80GB", document=_A100),
    "NVIDIA A100-PCIE-40GB": _card(
        "sm_80", 108, 40, 40, 1.555, 1.41, 250, _A100_RATES, "A100 40GB PCIe", "A100 PCIe 40GB", document=_A100),
    "NVIDIA A100 80GB PCIe": _card(
        "sm_80", 108, 40, 80, 1.935, 1.41, 300, _A100_RATES, "A100 PCIe 80GB", "A100-PCIE-80GB", document=_A100),
    "NVIDIA A30": _card(
        "sm_80", 56, 24, 24, 0.933, 1.44, 165, _rates(bf16=165.0, tf32=82.0, int8=330.0), "A30 24GB", document=_A30,
        sm_count="derived: 3,584 CUDA cores / 64",
        l2_bytes="unconfirmed: databases print 24 MB",
        boost_ghz="derived: 165 TFLOP/s of bf16 / (56 SMs x 2,048) = 1.44"),
    "NVIDIA GeForce RTX 3090": _card(
        "sm_86", 82, 6, 24, 0.936, 1.695, 350, _geforce(bf16=71.0, tf32=35.6, int8=284.0), "3090", document=_GA102,
        tensor_tflops=f"{_GA102}; {_HALVED}"),
    "NVIDIA A10": _card(
        "sm_86", 72, 6, 24, 0.6, 1.695, 150, _rates(bf16=125.0, tf32=62.5, int8=250.0), "A10 24GB", document=_A10,
        sm_count="derived: 9,216 CUDA cores / 128", l2_bytes=f"{_GA102}: 6,144 KB with all memory controllers",
        boost_ghz="derived: 125 TFLOP/s of bf16 / (72 SMs x 1,024) = 1.695"),
    "Orin": _card(
        "sm_87", 16, 4, 64, 0.2048, 1.3, 60, _rates(bf16=42.6, tf32=21.3, int8=85.2), "Jetson AGX Orin",
        "Jetson AGX Orin 64GB", "AGX Orin", document=_ORIN, memory_bytes=f"{_ORIN}; shared with the CPU",
        power_w=f"{_ORIN}: largest power mode of the module",
        tensor_tflops="derived: 16 SMs x 2,048 bf16 FLOP a clock x 1.3 GHz; the brief prints 170 for sparse int8, 4 "
                      "times that"),
    "NVIDIA L40S": _card(
        "sm_89", 142, 96, 48, 0.864, 2.52, 350, _rates(bf16=362.0, tf32=183.0, int8=733.0, fp8=733.0), "L40S 48GB",
        document=_L40S, sm_count=_LOG, boost_ghz=_LOG, l2_bytes=f"{_LOG}: 100,663,296; databases print 48 MB"),
    "NVIDIA L4": _card(
        "sm_89", 58, 48, 24, 0.3, 2.04, 72, _rates(bf16=121.0, tf32=60.0, int8=242.0, fp8=242.0), "L4 24GB",
        document=_L4, sm_count=_LOG, l2_bytes=_LOG, boost_ghz=_LOG,
        tensor_tflops=f"{_L4}, half of its rates with sparsity"),
    "NVIDIA GeForce RTX 4090": _card(
        "sm_89", 128, 72, 24, 1.008, 2.52, 450, _geforce(bf16=165.2, tf32=82.6, int8=660.6, fp8=330.3), "4090",
        document=_ADA, tensor_tflops=f"{_ADA}; {_HALVED}"),
    "NVIDIA B200": _card(
        "sm_100a", 148, 126.5, 180, 7.7, 1.965, 1000, _rates(bf16=2250.0, tf32=1125.0, int8=4500.0, fp8=4500.0),
        "B200 SXM", "B200 180GB", "HGX B200", document=_HGX, sm_count=_LOG, memory_tbs=_HGX_TBS, boost_ghz=_LOG,
        l2_bytes=f"derived: a {_LOG} of B300 says 132,644,864, and one of B200 126 MB",
        tensor_tflops=f"{_HGX}; derived: tf32 is half of bf16, which it rounds to 1,100"),
    "NVIDIA B300 SXM6 AC": _card(
        "sm_103a", 148, 126.5, 275_040 / 1_024, 7.7, 2.032, 1100,
        _rates(bf16=2250.0, tf32=1125.0, int8=150.0, fp8=4500.0), "B300", "B300 SXM", "B300 SXM6", "HGX B300",
        document=_HGX, sm_count=f"{_LOG}; NVIDIA describes the whole GPU with 160", l2_bytes=_LOG,
        memory_bytes=f"{_LOG}: 275,040 MiB; 288 GB when announced", memory_tbs=_HGX_TBS, boost_ghz=_LOG, power_w=_LOG,
        tensor_tflops=f"{_HGX}; derived: tf32 is half of bf16; unconfirmed: int8 is 150 in a cloud vendor's table and "
                      "4,500 in others, but ptxas refuses tcgen05's kind::i8 for sm_103a"),
    "NVIDIA GeForce RTX 5090": _card(
        "sm_120a", 170, 96, 32, 1.792, 2.407, 575, _geforce(bf16=209.5, tf32=104.8, int8=838.0) | _SCALED_FP8,
        "5090", document=_RTX, tensor_tflops=f"{_RTX}; {_HALVED}, block-scaled ones excepted: fp8 is theirs"),
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": _card(
        "sm_120a", 188, 128, 96, 1.792, 2.617, 600, _rates(bf16=503.8, tf32=251.9, int8=1007.6, fp8=1007.6),
        "PRO 6000", "RTX PRO 6000", "RTX PRO 6000 Blackwell", "RTX PRO 6000 Workstation", "PRO 6000 Workstation",
        document=_PRO, boost_ghz="unconfirmed: databases; it gives the 126 TFLOP/s of f32 that NVIDIA prints as 125",
        tensor_tflops="derived: 188 SMs x 1,024 bf16 FLOP a clock x 2.617 GHz; NVIDIA prints 4,000 for sparse fp4, "
                      "8 times that"),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": _card(
        "sm_120a", 188, 128, 96, 1.597, 2.43, 600, _rates(bf16=467.8, tf32=233.9, int8=935.6, fp8=935.6),
        "RTX PRO 6000 Server", "PRO 6000 Server", document=_PRO, sm_count=_LOG, l2_bytes=_LOG, boost_ghz=_LOG,
        memory_tbs=f"NVIDIA's product page; a {_LOG} has 12,481 MHz x 2 x 512 bits / 8 = 1.598",
        tensor_tflops="derived: 188 SMs x 1,024 bf16 FLOP a clock x 2.43 GHz; unconfirmed: the datasheet's 120 TFLOP/s "
                      "of f32 would make it 480; a public benchmark measured 417"),
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": _card(
        "sm_120a", 188, 128, 96, 1.792, 2.288, 300, _rates(bf16=440.5, tf32=220.2, int8=881.0, fp8=881.0),
        "RTX PRO 6000 Max-Q", "PRO 6000 Max-Q", "RTX PRO 6000 Blackwell Max-Q", document=_PRO,
        boost_ghz="derived: 110 TFLOP/s of f32 / (188 SMs x 256) = 2.288; one database prints 2.617",
        tensor_tflops="derived: 188 SMs x 1,024 bf16 FLOP a clock x 2.288 GHz"),
    "NVIDIA GB10": _card(
        "sm_121a", 48, 24, 128, 0.273, 2.418, 140, _rates(bf16=118.8, tf32=59.4, int8=237.7, fp8=237.7),
        "DGX Spark", "GB10 Grace Blackwell", document=_GB10, sm_count=_LOG, l2_bytes=_LOG,
        memory_bytes=f"{_GB10}; shared with the CPU, CUDA sees 120 GiB",
        boost_ghz=f"{_LOG} of CUDA's clock rate; unconfirmed: nvidia-smi reports 3.003 as the highest",
        power_w="design power of CPU and GPU together; nvidia-smi reports no limit",
        tensor_tflops="derived: 48 SMs x 1,024 bf16 FLOP a clock x 2.418 GHz; unconfirmed: that f32 sums run at the "
                      "full rate; a public benchmark measured 92 in bf16"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates that kernels reach on one card; the fields of `DeviceProfile` with the same names, and their source."""

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
H200: Final = Rates(
    tensor_tflops={"bf16": 790.0, "fp16": 790.0, "tf32": 430.0, "fp8_e4m3": 1450.0, "fp8_e5m2": 1450.0,
                   "int8": 1450.0},
    hbm_tbs=4.0, hbm_read_tbs=4.6, l2_tbs=9.7, clock_ghz=1.4, launch_us=2.2,
    resident_clusters={1: 132, 2: 66, 4: 30}, source="measured on an H200",
)  # fmt: skip

MEASURED: Final[dict[str, Rates]] = {"NVIDIA H200": H200}

#: Share of its datasheet rates that a card without measured rates is assumed to reach: that of the H200.
TENSOR_SHARE: Final = {"bf16": 0.80, "fp16": 0.80, "tf32": 0.87, "fp8_e4m3": 0.73, "fp8_e5m2": 0.73, "int8": 0.73}
COPY_SHARE, READ_SHARE, CLOCK_SHARE = 0.83, 0.96, 0.71
#: Bytes per clock that a multiprocessor reads from L2, and the share of multiprocessors that clusters of four can use.
L2_BYTES_PER_CLOCK, CLUSTER_SHARE = 37.0, 0.91
LAUNCH_US: Final = 2.2
ESTIMATED: Final = "estimated: the share of its datasheet that the H200 reaches of its own"


def estimated_rates(card: Card) -> Rates:
    """Rates of a card without measurements: the shares of its datasheet that the H200 reaches of its own."""
    return Rates(
        {dtype: rate * TENSOR_SHARE[dtype.removesuffix(HALF_SUMS)] for dtype, rate in card.tensor_tflops.items()},
        hbm_tbs=card.memory_tbs * COPY_SHARE, hbm_read_tbs=card.memory_tbs * READ_SHARE,
        l2_tbs=L2_BYTES_PER_CLOCK * card.sm_count * card.boost_ghz / 1e3, clock_ghz=card.boost_ghz * CLOCK_SHARE,
        launch_us=LAUNCH_US, resident_clusters=resident_clusters(ARCHS[card.arch], card.sm_count), source=ESTIMATED,
    )  # fmt: skip


def resident_clusters(arch: Arch, sm_count: int) -> dict[int, int]:
    """Clusters of 1, 2 and 4 blocks that a device with this many multiprocessors is assumed to run at once."""
    if arch.cluster_portable == 1:
        return {1: sm_count}
    return {1: sm_count, 2: sm_count // 2, 4: max(int(sm_count * CLUSTER_SHARE) // 4, 1)}
