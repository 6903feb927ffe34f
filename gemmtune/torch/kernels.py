"""What was prepared: for each kind of call on each GPU, the loaded kernel, or why torch computes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from gemmtune.torch import sources
from gemmtune.torch.operands import Refused
from space.config import Config
from space.explain import explain
from space.family import family_named
from space.problem import Problem
from tuner.errors import TunerError
from tuner.settings import settings
from workers.build import BuildFailure, compile_source
from workers.builder import source_of
from workers.errors import WorkerError

_THREAD: Final = threading.local()
log = logging.getLogger("gemmtune.torch")

#: Compile targets by compute capability.
_ARCHS: Final = {(9, 0): "sm_90a"}
_NONE: Final[dict[str, int]] = {}
#: Parts of scratch memory start at multiples of this, as torch's allocations do.
_ALIGN_BYTES: Final = 512


@dataclass
class Kernel:
    """One config, loaded on one GPU.

    Attributes:
        call: launches it (`workers.cuda.calls.Call`).
        dtype: of C.
        aligned: names of operands, in the order of `Copy`, with what each address must be a multiple of.
        zeroed: names of scratch memory that begins as zeros, with its bytes.
        passing: the same for memory whose content nobody needs between calls.
    """

    config: Config
    device: int
    call: Any
    dtype: torch.dtype
    aligned: tuple[tuple[str, int], ...]
    zeroed: dict[str, int]
    passing: dict[str, int]
    _kept: dict[int, tuple[dict[str, int], list[Tensor]]] = field(default_factory=dict)
    _masks: tuple[int, int, int] = field(init=False)
    _offsets: dict[str, int] = field(init=False)
    _passing_bytes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        mask_a, mask_b, mask_c = (bytes_ - 1 for _, bytes_ in self.aligned[:3])
        self._masks = mask_a, mask_b, mask_c
        self._offsets = {}
        for name, size in self.passing.items():
            self._offsets[name] = self._passing_bytes
            self._passing_bytes += -(-size // _ALIGN_BYTES) * _ALIGN_BYTES

    def launch(
        self, a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float
    ) -> None:
        """Puts it on the current stream.

        Raises:
            Refused: an address is not aligned as the config needs it.
        """
        if getattr(_THREAD, "device", -1) != self.device:
            # A thread that has allocated nothing yet has no context either.
            torch.cuda.set_device(self.device)
            _THREAD.device = self.device
        at_a, at_b, at_c = a.data_ptr(), b.data_ptr(), out.data_ptr()
        mask_a, mask_b, mask_c = self._masks
        at_source = source.data_ptr() if source is not None else 0
        at_bias = bias.data_ptr() if bias is not None else 0
        if at_a & mask_a or at_b & mask_b or at_c & mask_c:
            self._refuse((at_a, at_b, at_c))
        stream = torch._C._cuda_getCurrentRawStream(self.device)
        known = _STREAMS.get(stream) or _stream(stream)
        if not (self.zeroed or self.passing):
            self.call(known, _copy()(at_a, at_b, at_c, at_source, at_bias, alpha, beta), _NONE)
            return
        scratch, held = self._scratch(stream)
        self.call(known, _copy()(at_a, at_b, at_c, at_source, at_bias, alpha, beta), scratch)
        # What `held` keeps may go now: torch hands it out again to later work of this stream only.
        del held

    def _refuse(self, addresses: tuple[int, ...]) -> None:
        for (name, bytes_), address in zip(self.aligned, addresses, strict=False):
            if address % bytes_:
                raise Refused(f"{name} starts at {address:#x}, which is no multiple of the {bytes_} bytes that "
                              f"{self.config.family} loads or stores at a time: copy it with clone()")  # fmt: skip

    def _scratch(self, stream: int) -> tuple[dict[str, int], tuple[object, ...]]:
        """Addresses by name, and what must not be freed before the launch."""
        found: dict[str, int] = {}
        held: Tensor | None = None
        if self._passing_bytes:
            # Of one call alone.
            held = _bytes(self._passing_bytes, self.device)
            base = held.data_ptr()
            for name, offset in self._offsets.items():
                found[name] = base + offset
        if not self.zeroed:
            return found, (held,)
        if torch.cuda.is_current_stream_capturing():
            # Of the graph alone, and zeroed by each replay: eager calls of this stream have counters of their own.
            addresses, counters = self._zeros()
            return found | addresses, (held, counters)
        kept = self._kept.get(stream)
        if kept is None:
            kept = self._kept[stream] = self._zeros()
        found.update(kept[0])
        return found, (held,)

    def _zeros(self) -> tuple[dict[str, int], list[Tensor]]:
        made = {name: _bytes(size, self.device).zero_() for name, size in self.zeroed.items()}
        return {name: tensor.data_ptr() for name, tensor in made.items()}, list(made.values())


@dataclass(frozen=True)
class Absent:
    """No kernel of ours: torch computes.

    Attributes:
        why: one sentence.
    """

    why: str


_PREPARED: Final[dict[Hashable, Kernel | Absent]] = {}
_LOGGED: Final[set[str]] = set()
_LOCK: Final = threading.Lock()


def prepared(key: Hashable) -> Kernel | Absent | None:
    """What was prepared for calls of this kind."""
    return _PREPARED.get(key)


def everything() -> list[Kernel | Absent]:
    """All that was prepared, oldest first."""
    return list(_PREPARED.values())


def prepare(
    key: Hashable, problem: Problem, device: int, dtype: torch.dtype, forbidden: str = ""
) -> Kernel | Absent:
    """Looks the best config up, builds and loads it; kept for calls of this kind.

    Args:
        dtype: of C.
        forbidden: why no kernel of ours may compute it; empty where one may.
    """
    with _LOCK:
        if key not in _PREPARED:
            if torch.cuda.is_current_stream_capturing():
                # Loading is no part of a graph; the next call outside of one prepares it.
                return _told(problem, Absent("the stream is being captured and nothing is loaded yet: call it once "
                                             "before"))  # fmt: skip
            made = Absent(forbidden) if forbidden else _made(problem, device, dtype)
            _PREPARED[key] = _told(problem, made) if isinstance(made, Absent) else made
        return _PREPARED[key]


def absent(problem: Problem | str, why: str) -> None:
    """Says once why torch computes."""
    _told(problem, Absent(why))


def _told(problem: Problem | str, found: Absent) -> Absent:
    name = problem if isinstance(problem, str) else f"{problem.dtype} {problem.layout} {problem.shape}"
    line = f"{name} is computed by torch: {found.why}"
    if line not in _LOGGED:
        _LOGGED.add(line)
        log.warning(line)
    return found


def _made(problem: Problem, device: int, dtype: torch.dtype) -> Kernel | Absent:
    about = torch.cuda.get_device_properties(device)
    arch = _ARCHS.get((about.major, about.minor))
    if arch is None:
        return Absent(f"no kernel family is built for {about.name} (compute capability {about.major}.{about.minor})")
    try:
        found = sources.chosen().find(problem, about.name)
    except TunerError as error:
        return Absent(str(error))
    config = found.config
    if config is None:
        return Absent(found.why)
    family = family_named(config.family)
    if not family.own:
        return Absent(f"the library's is the fastest known ({found.why})")
    if family.arch != arch:
        return Absent(f"{family.name} is built for {family.arch}, {about.name} is {arch}")
    if broken := explain(family, problem, config).broken:
        return Absent(f"the config found is illegal here, {broken[0].rule}: {broken[0].numbers}")
    return _loaded(problem, config, device, about.multi_processor_count, dtype)


def _loaded(
    problem: Problem, config: Config, device: int, sm_count: int, dtype: torch.dtype
) -> Kernel | Absent:
    # The driver's bindings: not asked for where nothing is launched.
    from workers.cuda.calls import Call
    from workers.cuda.driver import CudaError

    try:
        built = compile_source(source_of(problem, config), family_named(config.family).arch, settings().cache_dir)
    except WorkerError as error:
        return Absent(str(error))
    if isinstance(built, BuildFailure):
        return Absent(f"{config.key} does not compile: {built.reason}")
    try:
        call = Call(problem, config, built.cubin, sm_count, _bytes(1024, device).data_ptr())
    except CudaError as error:
        return Absent(f"{config.key} can't be loaded: {error}")
    zeroed = {name: one.size_bytes for name, one in call.scratch.items() if one.zeroed}
    passing = {name: one.size_bytes for name, one in call.scratch.items() if not one.zeroed}
    aligned = tuple((name, call.alignment_bytes[name]) for name in ("a", "b", "c", "source", "bias"))
    return Kernel(config, device, call, dtype, aligned, zeroed, passing)


def _bytes(size: int, device: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device=_device(device))


@cache
def _device(index: int) -> torch.device:
    return torch.device("cuda", index)


_STREAMS: Final[dict[int, Any]] = {}


def _stream(handle: int) -> Any:  # noqa: ANN401  (a `workers.cuda.driver.Stream`, as far as launches need one)
    from workers.cuda.driver import Borrowed

    return _STREAMS.setdefault(handle, Borrowed(handle))


@cache
def _copy() -> Any:  # noqa: ANN401  (`Copy`, once the driver's bindings are needed anyway)
    from workers.cuda.operands import Copy

    return Copy
