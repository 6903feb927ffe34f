"""Measurement: one candidate's result on one device, with everything needed to trust it or to doubt it.

Values of these types cross process boundaries as JSON (`to_json`, `from_json`), never as pickle.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

from pydantic import BeforeValidator, TypeAdapter

from space.config import Config
from space.devices import DeviceProfile, DriverFacts, profile_from

T = TypeVar("T")
#: Bytes of operands that timed launches rotate through, as far as a replay's launches read as much. A program reads all
#: weights of a model between two launches on the same ones, and what a kernel keeps in L2 on purpose outlives rotations
#: of four times its size: with weights marked `evict_first`, 22 products of few rows took 2.4 % less time in those of
#: 200 MB than in those of 16 GB, and unmarked the same (benchmarks/results/rotation_h200.md).
ROTATION_BYTES: Final = 4 << 30
#: What the note of a measurement says whose energy was to be counted and could not be.
NO_ENERGY: Final = "no energy: the device has no counter of its own, or one too coarse for these blocks"
#: Begins the note of a replayed measurement, which says when a GPU took it.
REPLAYED: Final = "replayed:"

Stage = Literal["screen", "final"]


class Outcome(StrEnum):
    """How a candidate ended. Only times of `correct` ones count; every outcome is stored and shown."""

    CORRECT = "correct"
    CONSTRAINTS = "constraints"
    COMPILE = "compile"
    LAUNCH = "launch"
    TIMEOUT = "timeout"
    WRONG_RESULT = "wrong_result"
    UNSTABLE = "unstable"


class Policy(StrEnum):
    """What a time stands for; part of a measurement's identity. Times of two policies are never compared.

    Under each of them operands rotate past three times L2 inside one CUDA graph of many launches.
    """

    #: Alone, in blocks long enough that the kernel's own power sets its clock.
    SUSTAINED = "sustained"
    #: One replay of a millisecond or two, after rest.
    BURST = "burst"
    #: Each product behind a short elementwise kernel that triggers nothing early; a sample is the time of both.
    CHAIN = "chain"
    #: The same behind a kernel that lets the product start early (programmatic dependent launch).
    CHAIN_PDL = "chain_pdl"
    #: Replays in turn with rivals, all at one clock. Lends clock to hungry kernels: an instrument, never a verdict.
    ROUNDS = "rounds"

    @classmethod
    def _missing_(cls, value: object) -> Policy | None:
        # The name that stores and recordings used while rounds were the only policy.
        return cls.ROUNDS if value == "cold_graph" else None


#: The policy of screenings on a GPU; and of those in recordings from when rounds were the only policy.
SCREENING, RECORDED_SCREENING = Policy.BURST, Policy.ROUNDS


def replay_part(note: str) -> str:
    """The part of a measurement's note about its replay; empty if a GPU took it for this store."""
    return note[note.index(REPLAYED) :] if REPLAYED in note else ""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The device's state right after the samples were taken.

    Attributes:
        sm_mhz, memory_mhz: clocks.
        power_w, temperature_c: board power and GPU temperature.
        throttle_reasons: names of the active reasons that lower the clock; empty when none does.
    """

    sm_mhz: int
    memory_mhz: int
    power_w: float
    temperature_c: int
    throttle_reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verification:
    """Every element of C against a higher-precision reference. What is timed afterwards has to write the same.

    Attributes:
        elements: number compared; always the whole output.
        mismatches: elements outside the derived bound, NaN included, with those that differ between two runs and bytes
            overwritten outside C; at most `elements`.
        worst_ratio: largest |C - reference| as a share of its bound; at most 1 when correct, 1e30 when an element is
            infinite or NaN. Infinity is one too, and null in JSON, which has none.
        reference: how the reference was computed, as in `float64 on the GPU`.
    """

    elements: int
    mismatches: int
    worst_ratio: Annotated[float, BeforeValidator(lambda ratio: math.inf if ratio is None else ratio)]
    reference: str


class Program(NamedTuple):
    """The code that runs, and the bytes that it is timed on. Times of two say nothing about each other's code."""

    kernel_source_digest: str
    nvrtc: str
    driver: str
    cublaslt: str
    rotation_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a measurement depends on besides problem, config and policy.

    Attributes:
        device: GPU model as the driver names it.
        device_uuid: the one card.
        driver: driver version.
        nvrtc: version that compiled the kernels.
        kernel_source_digest: of the source text of the families that compete for the problem, without configs.
        cublaslt: version of the library that the baseline ran on; empty when there was none.
        gemmtune: version of this package.
        seed: of the operands' random data.
        rotation_bytes: that timed launches rotate through, as far as a replay reads as much; 0 of older measurements,
            whose copies were three times L2.
    """

    device: str
    device_uuid: str
    driver: str
    nvrtc: str
    kernel_source_digest: str
    cublaslt: str
    gemmtune: str
    seed: int
    rotation_bytes: int = 0

    @property
    def program(self) -> Program:
        """The kernels, compiler, driver and library that ran, and on how many bytes."""
        return Program(self.kernel_source_digest, self.nvrtc, self.driver, self.cublaslt, self.rotation_bytes)

    @property
    def kernels(self) -> tuple[str, str, str]:
        """The program without the driver, which differs between nodes of one version."""
        return self.kernel_source_digest, self.nvrtc, self.cublaslt

    @property
    def digest(self) -> str:
        """Content address of this record."""
        return hashlib.sha256(to_json(self.document)).hexdigest()

    @property
    def document(self) -> dict[str, str | int]:
        """Its fields; those of a record that is older than `rotation_bytes` are as they were."""
        written = {field.name: getattr(self, field.name) for field in fields(self)}
        if not self.rotation_bytes:
            del written["rotation_bytes"]
        return written


@dataclass(frozen=True, slots=True)
class Measurement:
    """One candidate on one problem and device under one policy. Append-only: nothing ever edits one.

    Attributes:
        problem_key: `Problem.key`.
        config: the candidate.
        stage: `screen` is short; `final` is taken beside rivals, sample i of one beside sample i of the others.
        policy: what the time stands for.
        outcome: how it ended.
        samples_us: microseconds of one launch, one sample per graph replay, turn or block; empty unless correct.
        detail: what went wrong, in one sentence; empty when correct.
        verification: present whenever the kernel ran to its end.
        clocks: present whenever samples are.
        build_digest: content address of the cubin; empty for library kernels.
        note: remarks: a library's description of its kernel (tile, cluster …), other processes.
        product_joules: energy that the board took for one launch; None where it was not measured.
    """

    problem_key: str
    config: Config
    stage: Stage
    policy: Policy
    outcome: Outcome
    samples_us: tuple[float, ...] = ()
    detail: str = ""
    verification: Verification | None = None
    clocks: Clocks | None = None
    build_digest: str = ""
    note: str = ""
    product_joules: float | None = None

    def __post_init__(self) -> None:
        verified = self.verification is not None and self.verification.mismatches == 0
        if self.outcome is Outcome.CORRECT and not (verified and self.samples_us):
            raise ValueError(f"{self.config.key} can't be correct: it needs a clean verification and samples")

    @classmethod
    def of_columns(
        cls, problem_key: str, config: Config, columns: Mapping[str, Any], verification: Verification | None,
        clocks: Clocks | None,
    ) -> Measurement:  # fmt: skip
        """The inverse of `columns`; other columns are ignored."""
        return cls(
            problem_key, config, columns["stage"], Policy(columns["policy"]), Outcome(columns["outcome"]),
            tuple(columns["samples_us"]), columns["detail"], verification, clocks, columns["build_digest"],
            columns["note"], columns.get("product_joules"),
        )  # fmt: skip

    def columns(self) -> dict[str, Any]:
        """The columns that every table of measurements shares, as plain values; no median without samples."""
        return {
            "stage": self.stage, "policy": self.policy.value, "outcome": self.outcome.value,
            "median_us": self.median_us if self.samples_us else None, "samples_us": list(self.samples_us),
            "detail": self.detail, "build_digest": self.build_digest, "note": self.note,
            "product_joules": self.product_joules,
        }  # fmt: skip

    @property
    def median_us(self) -> float:
        """Median sample; infinite when there is none, so that failures sort last."""
        return statistics.median(self.samples_us) if self.samples_us else float("inf")


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A worker's facts about its device.

    Attributes:
        name: identity of the GPU model (`space.devices.identity_of`); best configs are kept by it.
        arch: compile target.
        kind: `cuda` is a GPU in this machine, `recorded` a replay of one.
        uuid: the one card, or the digest of the recordings' names.
        driver: driver version.
        sm_count, l2_bytes, memory_bytes: as the driver reports them.
        screening: policy under which a recorded device was screened; None for that of old recordings, and on a GPU.
    """

    name: str
    arch: str
    kind: Literal["cuda", "recorded"]
    uuid: str
    driver: str
    sm_count: int
    l2_bytes: int
    memory_bytes: int = 0
    screening: Policy | None = None

    @property
    def screens_under(self) -> Policy:
        """The policy of its screenings."""
        return SCREENING if self.kind == "cuda" else self.screening or RECORDED_SCREENING

    @property
    def profile(self) -> DeviceProfile:
        """The device's profile.

        Raises:
            SpaceError: its arch is unknown, or no card of it is known.
        """
        memory = self.memory_bytes or None
        return profile_from(DriverFacts(self.name, self.arch, self.sm_count, self.l2_bytes, memory))


def median_places(count: int) -> tuple[int, int]:
    """Places, among so many sorted samples, of the ends of their median's 95 % interval; no distribution is assumed.

    The number of samples below the median is binomial(n, 1/2); its 95 % range is n/2 ± 0.98·√n.
    """
    reach = 0.98 * math.sqrt(count)
    return max(math.floor(count / 2 - reach), 0), min(math.ceil(count / 2 + reach), count - 1)


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the median of samples, from order statistics (`median_places`)."""
    ordered, (low, high) = sorted(samples), median_places(len(samples))
    return ordered[low], ordered[high]


_ADAPTERS: Final[dict[type, TypeAdapter[Any]]] = {}


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def to_json(value: object) -> bytes:
    """Canonical JSON of one of these values."""
    return _adapter(type(value)).dump_json(value)


def from_json(kind: type[T], text: str | bytes) -> T:
    """The inverse of `to_json`.

    Raises:
        pydantic.ValidationError: the text is not a value of `kind`.
    """
    return _adapter(kind).validate_json(text)


def from_document(kind: type[T], content: Mapping[str, object]) -> T:
    """One of these values from its parsed JSON.

    Raises:
        pydantic.ValidationError: the content is not a value of `kind`.
    """
    return _adapter(kind).validate_python(content)
