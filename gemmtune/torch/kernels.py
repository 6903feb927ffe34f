"""Prepared calls: for each kind of call on each GPU, the loaded kernel or torch's operator and why it computes."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from gemmtune.client import GemmtuneError
from gemmtune.torch import proofs, sources, streams
from gemmtune.torch.operands import Refused
from gemmtune.torch.operators import Compute, operator_of
from gemmtune.torch.private import current_device, current_stream, empty_strided
from gemmtune.torch.streams import Queue
from gemmtune.torch.torchs import MEMORY_SECONDS, ForNow, Passing, holds
from gemmtune.torch.torchs import Absent as Absent  # what may be prepared
from space.arch import arch_of_capability
from space.config import Config
from space.devices import DeviceProfile, DriverFacts, profile_from
from space.errors import SpaceError
from space.explain import explain
from space.family import families_for, family_named
from space.kinds.gemm import Gemm
from tuner.errors import TunerError
from tuner.settings import settings
from workers.build import BuildFailure, compile_source
from workers.builder import source_of
from workers.cuda.clocks import power_limits_w
from workers.cuda.copies import Strides
from workers.errors import WorkerError

log = logging.getLogger("gemmtune.torch")

#: A stream keeps at most this much scratch memory for its next call. cuBLASLt gets a workspace of the same size.
KEPT_BYTES: Final = 64 << 20
#: Prepared calls that are kept, of some 20 KB of the host's memory each; the oldest go first.
MOST_KINDS: Final = 1 << 14
_NONE: Final = (0, 0)
_DENSE: Final[Mapping[str, Strides]] = MappingProxyType({})


class _Thread(threading.local):
    """The device whose context is current on this thread; -1 before the first call."""

    device = -1


_THREAD: Final = _Thread()


@dataclass
class _Bound:
    """A kernel on one stream.

    Attributes:
        call: launches it on that stream (`workers.cuda.calls.CallOn`).
        grown: value of `Queue.grown` when the call last received its scratch addresses.
    """

    queue: Queue
    call: Any
    grown: int = -1


@dataclass
class Kernel:
    """One config, loaded on one GPU, for calls of one kind.

    Attributes:
        call: launches it (`workers.cuda.calls.Call`).
        shape, dtype: of C.
        aligned: each operand's name and the alignment of its address in bytes, in the order of `Copy`, then of scales.
        zeroed: name and bytes of each scratch buffer that must hold zeros before a call.
        passing: name and bytes of each scratch buffer whose content does not outlive a call.
        proved: whether its results were verified for exactly this problem when it was measured.
        strides: of operands whose lines are apart.
        build: digest of its program; empty for the library's.
        unmeasured: whether the config comes from another problem, or from a model.
        compute: torch's own operator; None where nobody asked for it.
    """

    config: Config
    device: int
    call: Any
    shape: tuple[int, ...]
    dtype: torch.dtype
    aligned: tuple[tuple[str, int], ...]
    zeroed: dict[str, int]
    passing: dict[str, int]
    proved: bool = True
    strides: Mapping[str, Strides] = field(default_factory=dict)
    build: str = ""
    unmeasured: bool = False
    compute: Compute | None = None
    _bound: dict[int, _Bound] = field(default_factory=dict)
    _masks: tuple[int, ...] = field(init=False)
    _scale_mask: int = field(init=False)
    _strides: tuple[int, ...] = field(init=False)
    _room: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self._masks = tuple(bytes_ - 1 for _, bytes_ in self.aligned[:5])
        self._scale_mask = max((bytes_ - 1 for _, bytes_ in self.aligned[5:]), default=0)
        self._strides = tuple(math.prod(self.shape[place + 1 :]) for place in range(len(self.shape)))
        self._room = streams.room(self.passing), streams.room(self.zeroed)

    def launch(
        self, a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float,
        out: Tensor | None = None, scales: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        """Launches it on the current stream; returns C, which is `out` if given.

        Args:
            scales: of A and B, f32 on the device; kernels of problems with scales read them, and the library's
                algorithms for 8-bit floats.

        Raises:
            Refused: an address lacks the alignment that the config needs.
        """
        device = self.device
        if current_device() != device:
            with torch.cuda.device(device):
                return self.launch(a, b, bias, source, alpha, beta, out, scales)
        if _THREAD.device != device:
            # A thread that has not allocated anything yet has no context.
            torch.cuda.set_device(device)
            _THREAD.device = device
        if out is None:
            out = empty_strided(self.shape, self._strides, self.dtype)
        at_a, at_b, at_c = a.data_ptr(), b.data_ptr(), out.data_ptr()
        at_source = source.data_ptr() if source is not None else 0
        at_bias = bias.data_ptr() if bias is not None else 0
        mask_a, mask_b, mask_c, mask_source, mask_bias = self._masks
        if at_a & mask_a or at_b & mask_b or at_c & mask_c or at_source & mask_source or at_bias & mask_bias:
            self._refuse((at_a, at_b, at_c, at_source, at_bias))
        at_scales = (scales[0].data_ptr(), scales[1].data_ptr()) if scales is not None else _NONE
        if (at_scales[0] | at_scales[1]) & self._scale_mask:
            self._refuse((0, 0, 0, 0, 0, *at_scales))
        stream = current_stream(device)
        bound = self._bound.get(stream) or self._bind(stream)
        with bound.queue.lock:
            # May be freed after the launch: torch reuses it only for later work on this stream.
            held = self._bring(bound) if self._room != _NONE else None
            if scales is not None:
                bound.call.scale(*at_scales)
            bound.call(at_a, at_b, at_c, at_source, at_bias, alpha, beta)
            del held
        return out

    def writes(self, out: Tensor) -> bool:
        """Whether `out` can hold C: a plain, contiguous tensor of C's shape and dtype on this device."""
        return holds(out, self.shape, self.dtype, self.device)

    def _refuse(self, addresses: tuple[int, ...]) -> None:
        for (name, bytes_), address in zip(self.aligned, addresses, strict=False):
            if address % bytes_:
                raise Refused(f"{name} starts at {address:#x}, which is not a multiple of the {bytes_} bytes that "
                              f"{self.config.family} loads or stores at a time: copy it with clone()")  # fmt: skip

    def _bind(self, stream: int) -> _Bound:
        queue = streams.queue(self.device, stream)
        with queue.lock:
            if stream not in self._bound:
                self._bound[stream] = _Bound(queue, self.call.on(queue.stream))
            return self._bound[stream]

    def _bring(self, bound: _Bound) -> object:
        """Gives the call its scratch addresses if they changed; returns the memory to keep until the launch."""
        passing_bytes, zeroed_bytes = self._room
        if torch.cuda.is_current_stream_capturing():
            # The graph needs memory of its own: replays are not ordered with eager calls on this stream.
            zeros = streams.reserve(self.device).take(zeroed_bytes)
            if zeros is None:
                zeros = streams.allocated(zeroed_bytes, self.device).zero_()
            memories = streams.allocated(passing_bytes, self.device), zeros
            grown = -1
        elif passing_bytes > KEPT_BYTES:
            memories = streams.allocated(passing_bytes, self.device), bound.queue.scratch(0, zeroed_bytes)[1]
            grown = -1
        elif bound.grown == bound.queue.grown:
            return None
        else:
            memories = bound.queue.scratch(passing_bytes, zeroed_bytes)
            grown = bound.queue.grown
        bound.grown = -1
        bound.call.bring(streams.places(self.passing, memories[0]) | streams.places(self.zeroed, memories[1]))
        bound.grown = grown
        return memories


_PREPARED: Final[dict[Hashable, Kernel | Absent]] = {}
#: The prepared call of a kind; None before its first call.
prepared: Final[Callable[[Hashable], Kernel | Absent | None]] = _PREPARED.get
#: By device. They stay loaded because graphs may use them: few, where every shape would load one of its own.
_PROGRAMS: Final[dict[int, dict[tuple[bytes, int], Any]]] = {}
_LOGGED: Final[set[str]] = set()
_LOCK: Final = threading.Lock()


def everything() -> list[Kernel | Absent]:
    """Every prepared call, oldest first."""
    return list(_PREPARED.values())


def prepare(
    key: Hashable, problem: Gemm, device: int, shape: Sequence[int], dtype: torch.dtype, activation: str,
    forbidden: str = "", source: sources.Source | None = None, strides: Mapping[str, Strides] = _DENSE,
) -> Kernel | Absent:  # fmt: skip
    """Looks up the best config, builds it, loads it, proves it where nobody has, and keeps it for calls of this kind.

    Beyond `MOST_KINDS` the oldest is forgotten: its next call prepares it anew.

    Args:
        shape, dtype: of C.
        forbidden: why torch has to compute it; empty if a kernel may.
        source: where its config comes from; the configured source by default.
        strides: of the operands `a` and `b` whose lines are apart.
    """
    with _LOCK:
        if key not in _PREPARED:
            shape = tuple(shape)
            operator = operator_of(problem, shape, dtype, activation, torch.device("cuda", device))

            def forget(passed: Absent) -> None:
                # Without waiting: the lock is held while kernels are built, and a later call will forget it then.
                if _LOCK.acquire(blocking=False):
                    try:
                        if _PREPARED.get(key) is passed:
                            del _PREPARED[key]
                    finally:
                        _LOCK.release()

            def torchs(why: str) -> Absent:
                if isinstance(why, Passing):
                    until = time.monotonic() + why.again_seconds
                    return _logged(
                        problem, ForNow(why, device, shape, dtype, operator, strides, until=until, forget=forget)
                    )
                return _logged(problem, Absent(why, device, shape, dtype, operator, strides))

            if torch.cuda.is_current_stream_capturing():
                # A graph can't contain loading; the next call outside of a capture prepares the kernel.
                return torchs("the stream is being captured and the kernel is not loaded yet: call it once before the "
                              "capture")  # fmt: skip
            found: Kernel | Absent | str
            try:
                with streams.unhindered():  # another thread may be capturing
                    found = forbidden or _looked_up(problem, device, shape, dtype, source, strides)
                if isinstance(found, Kernel) and found.zeroed:
                    streams.reserve(device).refill()
            except torch.OutOfMemoryError:
                # torch's own kernel may do without.
                found = Passing("too little memory is free to load its kernel", MEMORY_SECONDS)
            if isinstance(found, Kernel):
                found.compute = operator
            if isinstance(found, Kernel) and not found.proved:
                found = _proved(key, found, problem, torchs)
            _PREPARED[key] = torchs(found) if isinstance(found, str) else found
            while len(_PREPARED) > MOST_KINDS:
                del _PREPARED[next(iter(_PREPARED))]
        return _PREPARED[key]


def _proved(key: Hashable, kernel: Kernel, problem: Gemm, torchs: Callable[[str], Absent]) -> Kernel | Absent | str:
    """The kernel if its results are right, else why torch has to compute for now or for good."""

    def settle() -> None:
        try:
            why = proofs.disproof(kernel, problem)
        except Exception as error:  # nobody waits for this thread: the log line is all that is seen of it
            why = f"{kernel.config.key} can't be verified here: {error}"
        with _LOCK:
            _PREPARED[key] = torchs(why) if why else kernel

    unknown = sources.CHOSEN.verify == "background" and proofs.known(kernel, problem) is None
    if unknown and proofs.in_background(settle):
        return replace(torchs(f"{kernel.config.key} is being verified in the background"), pending=True)
    return proofs.disproof(kernel, problem) or kernel


def absent(problem: Gemm, why: str) -> None:
    """Logs once why torch computes a problem."""
    line = f"{problem.title} is computed by torch: {why}"
    if line not in _LOGGED:
        if len(_LOGGED) >= MOST_KINDS:
            _LOGGED.clear()
        _LOGGED.add(line)
        log.warning(line)


def _logged(problem: Gemm, found: Absent) -> Absent:
    absent(problem, found.why)
    return found


def _looked_up(
    problem: Gemm, device: int, shape: tuple[int, ...], dtype: torch.dtype, source: sources.Source | None,
    strides: Mapping[str, Strides],
) -> Kernel | str:  # fmt: skip
    """The loaded kernel, or why torch has to compute."""
    about = torch.cuda.get_device_properties(device)
    try:
        arch = arch_of_capability(about.major, about.minor).name
        # Without the limits, a capped card would get the bests of one at full power.
        power_w, default_power_w = power_limits_w(f"GPU-{getattr(about, 'uuid', '')}")
        profile = profile_from(DriverFacts(
            about.name, arch, about.multi_processor_count, about.L2_cache_size, power_w=power_w,
            default_power_w=default_power_w,
        ))  # fmt: skip
        families_for(arch)
        found = (source or sources.chosen()).find(problem, profile.name)
    except (SpaceError, TunerError, GemmtuneError) as error:
        return f"{about.name}: {error}"
    config = found.config
    if config is None:
        return Passing(found.why) if found.for_now else found.why
    family = family_named(config.family)
    if arch not in (built := family.targets | family.fallbacks):
        return f"{family.name} is built for {', '.join(sorted(built))}, {about.name} is {arch}"
    if broken := explain(family, problem, config, profile).broken:
        return f"the config found is illegal here, {broken[0].rule}: {broken[0].numbers}"
    if family.own:
        made = _loaded(problem, found, device, profile, strides)
    else:
        made = _of_library(problem, found, device, strides)
    if isinstance(made, str):
        return made
    loaded, build_digest = made
    zeroed = {name: one.size_bytes for name, one in loaded.scratch.items() if one.zeroed}
    passing = {name: one.size_bytes for name, one in loaded.scratch.items() if not one.zeroed}
    names = "a", "b", "c", "source", "bias", *(("scale_a", "scale_b") if problem.scales else ())
    aligned = tuple((name, loaded.alignment_bytes[name]) for name in names)
    # A program is known by its digest, the library by its version. Nobody measured it on operands that lie like these.
    known = build_digest == found.build_digest if family.own else bool(found.cublaslt)
    proved = found.source == "measured" and known and not strides
    return Kernel(config, device, loaded, shape, dtype, aligned, zeroed, passing, proved, strides, build_digest,
                  found.source in sources.UNMEASURED)  # fmt: skip


def _loaded(
    problem: Gemm, found: sources.Found, device: int, profile: DeviceProfile, strides: Mapping[str, Strides] = _DENSE
) -> tuple[Any, str] | str:
    """A kernel of ours, built where its source has no program, and loaded, and its build digest; or why it can't be."""
    # Imported here because the driver's bindings exist only where kernels can be launched.
    from workers.cuda.calls import Call
    from workers.cuda.driver import CudaError

    config, program, digest = found.config, found.program, found.build_digest
    assert config is not None
    if not program:
        try:
            source = source_of(problem, config, profile.arch.name)
            built = compile_source(source, profile.arch.name, settings().cache_dir)
        except (WorkerError, TunerError) as error:
            return str(error)
        if isinstance(built, BuildFailure):
            return f"{config.key} does not compile: {built.reason}"
        program, digest = built.cubin, built.digest
    try:
        anywhere = streams.allocated(1024, device).data_ptr()
        return Call(problem, config, program, profile, anywhere, strides, _PROGRAMS.setdefault(device, {})), digest
    except CudaError as error:
        return _refused(f"{config.key} can't be loaded: {error}", error.name)


def _of_library(
    problem: Gemm, found: sources.Found, device: int, strides: Mapping[str, Strides] = _DENSE
) -> tuple[Any, str] | str:
    """An algorithm of cuBLASLt, rebuilt, which has no build; or why it can't be."""
    from workers.cuda.calls import LibraryCall
    from workers.cuda.driver import CudaError
    from workers.cuda.families.cublaslt import as_measured

    assert found.config is not None
    library, why = as_measured(found.config, found.cublaslt, device)
    if library is None:
        return why
    try:
        return LibraryCall(problem, found.config, library, strides), ""
    except CudaError as error:
        return _refused(f"{found.config.key} can't be rebuilt: {error}", error.name)


def _refused(why: str, name: str) -> str:
    """Why a kernel can't be had: for now, where the driver lacks memory, which torch may keep."""
    return Passing(why, MEMORY_SECONDS) if name == "CUDA_ERROR_OUT_OF_MEMORY" else why
