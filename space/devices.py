"""Devices: one profile per GPU, resolved once from the driver's facts or from a table of known cards."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from space.arch import ARCHS, Arch
from space.cards import CARDS, HALF_SUMS, MEASURED, Card, estimated_rates, resident_clusters
from space.errors import ProfileError

#: Device of questions that name none: the card of the recordings and of the shipped model.
DEFAULT_DEVICE: Final = "NVIDIA H200"
DRIVER: Final = "driver"
#: A power limit this much below the card's default makes it another device: its clock, and so its best, differ.
CAPPED_BELOW: Final = 0.97
#: Multiprocessors by compute slices of a whole GPU (NVIDIA Multi-Instance GPU User Guide, supported profiles).
MIG_SLICES: Final = 7
MIG_SMS: Final = {
    "sm_80": {1: 14, 2: 28, 3: 42, 4: 56, 7: 98},
    "sm_90a": {1: 16, 2: 32, 3: 60, 4: 64, 7: 132},
}  # fmt: skip

#: Profiles kept by name: any text may be asked for.
_KEPT_PROFILES: Final = 1_024


def _identity(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII | re.IGNORECASE)


_MIG: Final = _identity(
    r"(?P<card>[^()]+?) MIG (?P<slice>(?P<slices>[1-7])[cg]\.(?:[1-7]g\.)?(?P<gigabytes>[1-9]\d{0,3})gb(?:\+\S+)?)"
)
_PARTIAL: Final = _identity(r"(?P<card>[^()]+?) \((?P<sms>[1-9]\d{0,2}) SMs\)")
_CAPPED: Final = _identity(r"(?P<card>[^()]+?(?: \(\d{1,3} SMs\))?) \((?P<watts>[1-9]\d{0,3}) W\)")


@dataclass(frozen=True, slots=True, eq=False)
class DeviceProfile:
    """Everything that rules, estimates and answers know about a device. Resolve it once and hand it down.

    A profile equals only itself: `profile_named` returns the same object for the same name.

    Attributes:
        name: the device's identity (see `identity_of`): the driver's name, with a suffix if the
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
            `fp16_acc16` and the like have their own where f16 sums are faster than f32 sums.
        tensor_flops_per_clock: 16-bit operations that the tensor cores of one multiprocessor finish per clock.
        launch_us: time of an almost empty kernel inside a CUDA graph.
        resident_clusters: clusters of 1, 2, 4 … blocks that run at once, one block per multiprocessor. Clusters
            stay within a GPC and GPCs differ in size, so larger clusters leave multiprocessors idle.
        sources: source of each figure by field name: `driver`, `measured …`, `estimated: …`, or a document.
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
        """Dense rate of a problem's dtype word; the bf16 rate if the card has no rate for it.

        f16 sums have the rate of f32 sums unless the card has one for them. Promoted sums, another type of B or of C
        and unsigned integers run at the rate of A's plain format.
        """
        if dtype.endswith(",fp16"):
            dtype = dtype.split(",")[0] + HALF_SUMS
        if (rate := self.tensor_tflops.get(dtype)) is not None:
            return rate
        plain = dtype.split(",")[0].removeprefix("u")
        return self.tensor_tflops[max((name for name in self.tensor_tflops if plain.startswith(name)), default="bf16")]

    def cluster_slots(self, size: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Clusters of `size` blocks that run at once, one block per multiprocessor, for each row.

        A size without an entry leaves as many multiprocessors idle as the next smaller one.
        """
        known = np.array(sorted(self.resident_clusters))
        held = np.array([self.resident_clusters[each] for each in known])
        below = np.searchsorted(known, size, side="right") - 1
        slots: npt.NDArray[np.int64] = np.maximum(held[below] * known[below] // size, 1)
        return slots


def same_multiprocessors(one: DeviceProfile, other: DeviceProfile) -> bool:
    """Whether two devices have as many multiprocessors of one architecture: an H100 SXM and an H200, for example."""
    return one.arch is other.arch and one.sm_count == other.sm_count


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """A driver's facts about one GPU; None for those it does not report.

    Attributes:
        name: as the driver names it.
        arch: compile target of its compute capability.
        sm_count, l2_bytes, memory_bytes: as the driver reports them.
        highest_clock_ghz: highest multiprocessor clock.
        memory_tbs: peak rate of device memory, from its clock and bus width.
        power_w, default_power_w: enforced and default board power limit.
    """

    name: str
    arch: str
    sm_count: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    highest_clock_ghz: float | None = None
    memory_tbs: float | None = None
    power_w: float | None = None
    default_power_w: float | None = None


def known_names() -> tuple[str, ...]:
    """Names of every card in the table, in its order."""
    return tuple(CARDS)


def identity_of(facts: DriverFacts) -> str:
    """The name under which a device's measurements are kept; equal only for cards that perform alike.

    It is the driver's name, which tells SXM, PCIe, NVL and MIG slices apart, with a suffix for what the name
    hides: `NVIDIA H200 (500 W)` is power-capped, `NVIDIA H100 PCIe (100 SMs)` has fewer multiprocessors,
    `NVIDIA H100 PCIe (100 SMs) (300 W)` both.
    """
    known = find_profile(facts.name)
    name = known.name if known else facts.name
    card = CARDS.get(name)
    if card and facts.sm_count and facts.sm_count != card.sm_count:
        name = f"{name} ({facts.sm_count} SMs)"
    if facts.power_w and facts.default_power_w and facts.power_w < CAPPED_BELOW * facts.default_power_w:
        name = f"{name} ({facts.power_w:.0f} W)"
    return name


@lru_cache(maxsize=_KEPT_PROFILES)
def profile_named(name: str) -> DeviceProfile:
    """The profile of a device, by its identity or by a name that vendors or people use for it.

    Raises:
        ProfileError: no known card has this name; the message lists the nearest ones.
    """
    if known := _names().get(_folded(name)):
        return _of_card(known, CARDS[known]) if known == name else profile_named(known)
    for pattern, derive in ((_MIG, _mig_slice), (_PARTIAL, _partial), (_CAPPED, _capped)):
        if (match := pattern.fullmatch(name.strip())) and (whole := find_profile(match["card"])):
            part = derive(whole, match)
            return part if part.name == name else profile_named(part.name)
    raise unknown_device(name)


def unknown_device(name: str) -> ProfileError:
    """The error for a name that no known card has, or that several share, with the names to write."""
    if cards := cards_called(name):
        return ProfileError(f"device {name[:100]!r} names several cards: write one of {', '.join(cards)}")
    return ProfileError(f"device {name[:100]!r} is unknown: {_nearest_names(name)}")


@lru_cache(maxsize=_KEPT_PROFILES)
def profile_from(facts: DriverFacts) -> DeviceProfile:
    """The profile of a device that a driver describes; the driver's figures replace the table's.

    Raises:
        ProfileError: the table does not have the card, and the driver's facts alone do not suffice.
        ArchError: there is no such compile target.
    """
    name = identity_of(facts)
    try:
        base = profile_named(name)
    except ProfileError:
        base = _of_facts(name, facts)
    if facts.sm_count and facts.sm_count != base.sm_count:
        base = _with_multiprocessors(base, facts.sm_count, name)
    said = {
        field: value
        for field in ("sm_count", "l2_bytes", "memory_bytes", "highest_clock_ghz", "memory_tbs", "power_w")
        if (value := getattr(facts, field)) is not None
    }
    sources = {**base.sources, **dict.fromkeys(said, DRIVER), "arch": DRIVER}
    return replace(base, name=name, sources=sources, **said)


def find_profile(name: str) -> DeviceProfile | None:
    """The profile of a device, or None if no known card has this name."""
    try:
        return profile_named(name)
    except ProfileError:
        return None


def cards_called(name: str) -> list[str]:
    """A short name of each card, where several begin with these words, as `h100 sxm` and `h100 pcie` of `h100`."""
    asked = _folded(name[:100]).split()
    shortest: dict[str, str] = {}
    for each, card in _names().items():
        if asked and each.split()[: len(asked)] == asked:
            shortest[card] = min(shortest.get(card, each), each, key=len)
    return [shortest[card] for card in CARDS if card in shortest] if len(shortest) > 1 else []


def identity_named(name: str) -> str:
    """The identity of a device by any of its names; the name itself if no known card has it."""
    profile = find_profile(name)
    return profile.name if profile else name


def card_of(identity: str) -> str:
    """The card's name in an identity: `NVIDIA H200` of `NVIDIA H200 (500 W)`."""
    for pattern in (_CAPPED, _PARTIAL, _MIG):
        if match := pattern.fullmatch(identity):
            identity = match["card"]
    return identity


def arch_measured(arch: str) -> bool:
    """Whether the rates of any card of an arch were measured."""
    return any(CARDS[name].arch == arch for name in MEASURED)


@cache
def reference_profile(arch: str) -> DeviceProfile:
    """The device that stands for an arch: the first of its cards in the table with measured rates, else the first.

    Raises:
        ProfileError: no card of the table is of this arch.
    """
    names = sorted((name for name, card in CARDS.items() if card.arch == arch), key=lambda name: name not in MEASURED)
    if not names:
        archs = dict.fromkeys(card.arch for card in CARDS.values())
        raise ProfileError(f"no known device has arch {arch}: use one of {', '.join(archs)}")
    return profile_named(names[0])


@cache
def _names() -> Mapping[str, str]:
    found = {_folded(alias): name for name, card in CARDS.items() for alias in card.aliases}
    return found | {_folded(name): name for name in CARDS}


def _folded(name: str) -> str:
    words = re.sub(r"[\s_]+", " ", name).strip().lower()
    return words.removeprefix("nvidia ").removeprefix("geforce ")


def _nearest_names(name: str) -> str:
    asked = _folded(name[:100])
    containing = [each for each in _names() if asked and (asked in each.split() or each.startswith(asked))]
    near = [*containing, *get_close_matches(asked, list(_names()), n=8, cutoff=0.0)]
    names = list(dict.fromkeys(_names()[each] for each in near))[:3]
    return f"the nearest known ones are {', '.join(names)}"


def _of_card(name: str, card: Card) -> DeviceProfile:
    rates = asdict(MEASURED.get(name) or estimated_rates(card))
    source = rates.pop("source")
    sources = {
        **card.sources, "highest_clock_ghz": card.sources["boost_ghz"],
        "tensor_flops_per_clock": card.sources["tensor_tflops"], **dict.fromkeys(rates, source),
    }  # fmt: skip
    arch = ARCHS[card.arch]
    return DeviceProfile(
        name=name, arch=arch, compute_capability=arch.compute_capability, sm_count=card.sm_count,
        l2_bytes=card.l2_bytes, memory_bytes=card.memory_bytes, power_w=card.power_w,
        highest_clock_ghz=card.boost_ghz, memory_tbs=card.memory_tbs,
        tensor_flops_per_clock=_flops_per_clock(card), sources=sources, **rates,
    )  # fmt: skip


def _flops_per_clock(card: Card) -> int:
    """The power of two nearest to the card's 16-bit rate: datasheets state it at clocks of their own."""
    return 1 << round(math.log2(card.tensor_tflops["bf16"] * 1e3 / (card.sm_count * card.boost_ghz)))


def _scaled(profile: DeviceProfile, share: float, why: str, **changed: object) -> DeviceProfile:
    """A part of a device: its rates shrink with its multiprocessors."""
    scaled = {
        "tensor_tflops": {dtype: rate * share for dtype, rate in profile.tensor_tflops.items()},
        "l2_tbs": profile.l2_tbs * share,
        **changed,
    }
    estimated = dict.fromkeys((*scaled, "hbm_tbs", "hbm_read_tbs", "clock_ghz"), f"estimated: {why}")
    return replace(profile, sources={**profile.sources, **estimated}, **scaled)  # type: ignore[arg-type]


def _mig_slice(card: DeviceProfile, match: re.Match[str]) -> DeviceProfile:
    slices, memory = int(match["slices"]), int(match["gigabytes"]) * 2**30
    even = card.sm_count * slices // MIG_SLICES
    sm_count = min(MIG_SMS.get(card.arch.name, {}).get(slices, even), card.sm_count)
    held = min(memory / card.memory_bytes, 1.0)
    return _scaled(
        card, sm_count / card.sm_count, f"{slices} of {MIG_SLICES} slices of {card.name}",
        name=f"{card.name} MIG {match['slice'].lower()}", sm_count=sm_count,
        memory_bytes=memory, l2_bytes=int(card.l2_bytes * held), memory_tbs=card.memory_tbs * held,
        hbm_tbs=card.hbm_tbs * held, hbm_read_tbs=card.hbm_read_tbs * held,
        resident_clusters=resident_clusters(card.arch, sm_count),
    )  # fmt: skip


def _capped(card: DeviceProfile, match: re.Match[str]) -> DeviceProfile:
    watts = float(match["watts"])
    # Power goes with the cube of the clock while voltage follows it, with its first power where it no longer can.
    share = min((watts / card.power_w) ** 0.5, 1.0)
    return _scaled(
        card, share, f"{card.name} at {watts:.0f} of {card.power_w:.0f} W",
        name=f"{card.name} ({watts:.0f} W)", power_w=watts, l2_tbs=card.l2_tbs, clock_ghz=card.clock_ghz * share,
    )  # fmt: skip


def _partial(card: DeviceProfile, match: re.Match[str]) -> DeviceProfile:
    sm_count = int(match["sms"])
    return _with_multiprocessors(card, sm_count, f"{card.name} ({sm_count} SMs)")


def _with_multiprocessors(card: DeviceProfile, sm_count: int, name: str) -> DeviceProfile:
    return _scaled(
        card, sm_count / card.sm_count, f"{sm_count} of {card.sm_count} multiprocessors of {card.name}",
        name=name, sm_count=sm_count, resident_clusters=resident_clusters(card.arch, sm_count),
    )  # fmt: skip


def _of_facts(name: str, facts: DriverFacts) -> DeviceProfile:
    """The profile of an unknown card: its arch's reference card, scaled by multiprocessors and the highest clock."""
    like = reference_profile(facts.arch)
    if not facts.sm_count:
        raise ProfileError(f"device {name[:100]!r} is unknown, and its driver does not say how many SMs it has: "
                           f"{_nearest_names(name)}")  # fmt: skip
    memory = facts.memory_tbs / like.memory_tbs if facts.memory_tbs else facts.sm_count / like.sm_count
    clock = facts.highest_clock_ghz / like.highest_clock_ghz if facts.highest_clock_ghz else 1.0
    # Another card's datasheet says nothing of this one.
    like = replace(like, sources=dict.fromkeys(like.sources, f"estimated: as {like.name}"))
    return _scaled(
        like, facts.sm_count / like.sm_count * clock, f"scaled by multiprocessors and clock from {like.name}",
        name=name, sm_count=facts.sm_count, clock_ghz=like.clock_ghz * clock,
        memory_tbs=like.memory_tbs * memory, hbm_tbs=like.hbm_tbs * memory, hbm_read_tbs=like.hbm_read_tbs * memory,
        resident_clusters=resident_clusters(like.arch, facts.sm_count),
    )  # fmt: skip
