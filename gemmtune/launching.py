"""`gemmtune.launch`: the measured kernel of a product, ours or cuBLASLt's, on arrays of whatever speaks DLPack."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

import numpy as np

from gemmtune.apart import difference
from gemmtune.arrays import Array, ArrayRefused, array_of, check_own, device_of, problem_of, scales_of, strides_of
from gemmtune.exact import Exact, check_machine, check_path, differences, exact
from gemmtune.found import Found
from gemmtune.named import absolute
from gemmtune.once import once
from space.errors import SpaceError
from space.family import is_own
from space.kinds.gemm import Gemm
from tuner.errors import TunerError
from tuner.evidence.legality import forbidden
from tuner.settings import settings
from workers.cuda.copies import Strides
from workers.cuda.machine import this_machine
from workers.errors import WorkerError

if TYPE_CHECKING:
    from workers.cuda.families.cublaslt import Handle

#: Held while a call writes its arguments and launches.
_LOCK: Final = threading.Lock()
_NOWHERE_BYTES: Final = 1024
#: Arrays of a call in the order of `launch`, as its caller knows them.
_SHOWN: Final = {"a": "a", "b": "b", "c": "out", "scale_a": "the scale of a", "scale_b": "the scale of b"}
#: CUDA's handle of the per-thread default stream: another stream in every thread.
_PER_THREAD: Final = 2


class _Owner:
    """Who calls on the per-thread default stream: one thread, and after its end another one; compared by identity.

    Attributes:
        devices: GPUs that it has kernels on.
        left: those of them on which work of the thread before may still run.
    """

    def __init__(self) -> None:
        self.devices = set[int]()
        self.left = set[int]()


class _End:
    """Goes with its thread."""


#: Those of ended threads. Each would keep its kernels and their memory, one more for every thread that a server starts.
_ENDED: Final[list[_Owner]] = []


class _Thread(threading.local):
    """This thread's owner."""

    def __init__(self) -> None:
        try:
            self.owner = _ENDED.pop()
        except IndexError:
            self.owner = _Owner()
        self.owner.left = set(self.owner.devices)
        self._end = _End()
        finalize(self._end, _ENDED.append, self.owner).atexit = False


_THREAD: Final = _Thread()

#: Strides of the operands whose lines are apart, by name.
Apart = tuple[tuple[str, Strides], ...]


def launch(
    a: Any, b: Any, out: Any, stream: int = 0, *, scales: tuple[Any, Any] | None = None,  # noqa: ANN401
    table: str | Path | None = None, stale: bool = False,
) -> None:  # fmt: skip
    """Enqueues out = a · b with the kernel that was measured for exactly this product: ours, or cuBLASLt's algorithm.

    The first call of a product loads its kernel, outside of captures; later ones write addresses and launch. Any thread
    may call for any GPU, and calls on one stream may follow one another without waiting. A graph uses the scratch
    memory of the stream on which it was captured: replay it there, or where nothing runs beside it. Rows (or columns)
    of `a` and `b` may lie a multiple of 16 bytes apart: the first such call compares the kernel's bits with those on
    dense operands, where it was measured.

    f32 is multiplied as tf32, whatever precision the caller's library has for it; 8-bit floats are summed fast.

    An algorithm of cuBLASLt is rebuilt, by the version of the library that measured it alone, whatever `stale` says.

    Args:
        a, b, out: [M,K], [K,N] and [M,N], or batches of them, in one GPU's memory; they speak DLPack.
        stream: handle of a CUDA stream, as `cupy.cuda.Stream.ptr` gives it; 0 for the default stream. The arrays'
            producers make it wait for what still writes them, as DLPack has it.
        scales: of 8-bit floats `a` and `b`, f32 on the GPU: one number each, or M for a's rows and N for b's columns.
        table: a table or a bundle of `gemmtune export`; GEMMTUNE_TABLE by default.
        stale: take one that was measured with another driver or cuBLASLt; GEMMTUNE_TABLE_STALE=1 does so too.

    Raises:
        ArrayRefused: the table has no kernel for this product, cuBLASLt is missing or of another version than the one
            that measured its algorithm, or no kernel takes these arrays. Nothing was launched on them.
        TableError: the table can't be read, or is of another machine.
    """
    device = device_of(a, "a")
    # Imported here because the driver's bindings exist only where kernels can be launched.
    from workers.cuda.device import current
    from workers.cuda.driver import CudaError

    stream, given = _handle(stream), () if scales is None else _pair(scales)
    try:
        # torch gives no array of another GPU than the current one away, and orders the streams of that one alone.
        with current(device):
            arrays = array_of(a, "a", stream), array_of(b, "b", stream), array_of(out, "out", stream)
            factors = tuple(
                array_of(each, f"the scale of {name}", stream) for each, name in zip(given, "ab", strict=False)
            )
    except (CudaError, WorkerError) as error:
        raise ArrayRefused(f"a is on GPU {device}: {error}; use your library's own product") from error
    problem = problem_of(*arrays, scales_of(*arrays[:2], *factors) if factors else "")
    check_own(arrays[2], *((f"the scale of {name}", each) for each, name in zip(factors, "ab", strict=False)))
    apart = tuple(strides_of(*arrays[:2]).items())
    source = _source(str(table or settings().table or ""), stale)
    owner = _THREAD.owner if stream == _PER_THREAD else None
    try:
        with current(device):
            if owner:
                _settle(owner, device, problem)
            call = _call(source, problem, device, stream, owner, apart)
            _check(call, *arrays, *factors)
            with _LOCK:
                call.on(*(array.address for array in (*arrays, *factors)))
    except (CudaError, SpaceError, WorkerError, TunerError) as error:
        raise ArrayRefused(f"{problem.title} on GPU {device}: {error}; use your library's own product") from error


def _settle(owner: _Owner, device: int, problem: Gemm) -> None:
    """Waits for the thread before: its work may still use the scratch memory of these kernels.

    Raises:
        ArrayRefused: the stream is being captured, in which nothing can be waited for.
    """
    owner.devices.add(device)
    if device in owner.left:
        from cuda.bindings import driver as cu

        from workers.cuda.driver import Borrowed, check

        if Borrowed(_PER_THREAD).capturing:
            raise ArrayRefused(_captured(problem))
        check("cuCtxSynchronize", cu.cuCtxSynchronize())
        owner.left.discard(device)


def _captured(problem: Gemm) -> str:
    return f"{problem.title}: the stream is being captured: call it once before the capture"


def _handle(stream: object) -> int:
    """A stream's handle.

    Raises:
        ArrayRefused: it is something else, as a library's own object is.
    """
    try:
        return index(stream)  # type: ignore[arg-type]
    except TypeError as error:
        raise ArrayRefused(
            f"stream is a {type(stream).__name__}: give its handle, as CuPy's .ptr or torch's .cuda_stream, or 0"
        ) from error


def _pair(scales: object) -> tuple[Any, Any]:
    """The scales of A and of B.

    Raises:
        ArrayRefused: they are not two.
    """
    if not isinstance(scales, tuple | list):
        raise ArrayRefused(f"scales are a {type(scales).__name__}: give a pair, (that of a, that of b)")
    if len(scales) != 2:
        raise ArrayRefused(f"scales are {len(scales)}: give two, that of a and that of b; no kernel scales out")
    return scales[0], scales[1]


class _Call:
    """A kernel on one stream of one GPU, with scratch memory of its own."""

    def __init__(self, source: Exact, problem: Gemm, device: int, stream: int, apart: Apart) -> None:
        from workers.cuda.device import open_device
        from workers.cuda.driver import Borrowed, CudaError

        self._problem, self._stream = problem, stream
        self._facts = facts = open_device(device)
        found = source.find(problem, facts.name)
        config = found.config
        if config is None:
            raise ArrayRefused(f"{problem.title} on {facts.name}: {found.why}; use your library's own product")
        # A rule may be newer than the table.
        if broken := forbidden(problem, config, facts.name):
            raise ArrayRefused(f"{problem.title}: the measured config breaks {broken}; tune again")
        self._config, own = config, is_own(config)
        self._program = found.program or _built(problem, config, facts.arch, found.build_digest) if own else b""
        self.alignment_bytes: Mapping[str, int] = {}
        try:
            if Borrowed(stream).capturing:
                # To allocate would end the capture.
                raise ArrayRefused(_captured(problem))
            self._library = None if own else self._opened(found, device)
            # A caller may ask for a refused product again and again.
            with ExitStack() as made:
                self.on = self._bound(dict(apart), made)
                if wrong := self._wrong(dict(apart)) if apart else "":
                    raise ArrayRefused(
                        f"{problem.title}: {config.key} is wrong on operands that lie apart: {wrong}; copy them"
                    )
                made.pop_all()
        except CudaError as error:
            verb = "loaded" if own else "rebuilt"
            raise ArrayRefused(f"{problem.title}: {config.key} can't be {verb} for these operands: {error}") from error

    def _opened(self, found: Found, device: int) -> Handle:
        """cuBLASLt, of the version that measured the algorithm."""
        from workers.cuda.families.cublaslt import as_measured

        assert found.config is not None
        library, why = as_measured(found.config, found.cublaslt, device)
        if library is None:
            raise ArrayRefused(f"{self._problem.title} on {self._facts.name}: {why}; use your library's own product")
        return library

    def _wrong(self, apart: Mapping[str, Strides]) -> str:
        with ExitStack() as made:
            return difference(self._problem, apart, self._waiting({}, made), self._waiting(apart, made), _Gpu())

    def _bound(self, apart: Mapping[str, Strides], made: ExitStack) -> Any:  # noqa: ANN401
        """Enqueues the kernel on addresses of a, b, c and of scales, where the problem has some.

        Args:
            made: frees the program and its memory.
        """
        from cuda.bindings import driver as cu

        from workers.cuda.calls import Call, LibraryCall
        from workers.cuda.driver import Borrowed, Buffer, check

        def memory(size_bytes: int, zeroed: bool = False) -> int:
            found = Buffer.allocate(size_bytes)
            made.callback(found.free)
            if zeroed:
                check("cuMemsetD8", cu.cuMemsetD8(found.address, 0, found.size_bytes))
                check("cuCtxSynchronize", cu.cuCtxSynchronize())
            return found.address

        call: Call | LibraryCall
        if self._library:
            call = LibraryCall(self._problem, self._config, self._library, apart)
        else:
            anywhere = memory(_NOWHERE_BYTES)
            call = Call(self._problem, self._config, self._program, self._facts.profile, anywhere, apart)
        made.callback(call.unload)
        self.alignment_bytes = dict(call.alignment_bytes)
        on = call.on(Borrowed(self._stream))
        on.bring({name: memory(each.size_bytes, each.zeroed) for name, each in call.scratch.items()})

        def run(a: int, b: int, c: int, *scales: int) -> None:
            if scales:
                on.scale(*scales)
            on(a, b, c, 0, 0, 1.0, 0.0)

        return run

    def _waiting(self, apart: Mapping[str, Strides], made: ExitStack) -> Any:  # noqa: ANN401
        from cuda.bindings import driver as cu

        from workers.cuda.driver import check

        run = self._bound(apart, made)

        def wait(*at: int) -> None:
            # Copies from the host may still be on their way.
            check("cuCtxSynchronize", cu.cuCtxSynchronize())
            run(*at)
            check("cuStreamSynchronize", cu.cuStreamSynchronize(self._stream))

        return wait


class _Gpu:
    """The memory of the current device (`gemmtune.apart.Memory`)."""

    def __init__(self) -> None:
        self._held: list[Any] = []

    def put(self, content: np.ndarray) -> int:
        from cuda.bindings import driver as cu

        from workers.cuda.driver import Buffer, check

        held = Buffer.allocate(content.nbytes)
        self._held.append(held)
        check("cuMemcpyHtoD", cu.cuMemcpyHtoD(held.address, content.ctypes.data, content.nbytes))
        return held.address

    def get(self, address: int, size_bytes: int) -> bytes:
        from cuda.bindings import driver as cu

        from workers.cuda.driver import check

        made = np.empty(size_bytes, np.uint8)
        check("cuMemcpyDtoH", cu.cuMemcpyDtoH(made.ctypes.data, address, size_bytes))
        return made.tobytes()

    def free(self) -> None:
        for held in self._held:
            held.free()
        self._held.clear()


def _built(problem: Gemm, config: Any, arch: str, digest: str) -> bytes:  # noqa: ANN401
    from workers.build import BuildFailure, compile_source
    from workers.builder import source_of

    built = compile_source(source_of(problem, config, arch), arch, settings().cache_dir)
    if isinstance(built, BuildFailure) or built.digest != digest:
        why = built.reason if isinstance(built, BuildFailure) else (
            f"build {built.digest[:12]} is made of today's kernel by this NVRTC, and {digest[:12]} was measured"
        )  # fmt: skip
        raise ArrayRefused(f"{problem.title}: the measured program can't be built here: {why}; measure again with "
                           "`gemmtune retune --stale`, or use a bundle of this version of gemmtune")  # fmt: skip
    return built.cubin


def _source(table: str, stale: bool) -> Exact:
    # Threads that come together share a source, and so its kernels: those that a thread loaded before its capture would
    # not be found in it otherwise. A path is meant from the folder that the program is in now.
    check_path(table, "gemmtune.launch()")
    return _loaded(str(absolute(table)) if table else "", stale)


@once
def _loaded(table: str, stale: bool) -> Exact:
    if not table:
        raise ArrayRefused("no table is given: name one, or set GEMMTUNE_TABLE to a table or a bundle")
    source, machine = exact(Path(table)), this_machine()
    # Settings are read last: they want a home folder, which a user who only runs a bundle may lack.
    check_machine(table, source, machine, stale or (bool(differences(source, machine)[1]) and settings().table_stale))
    return source


@once
def _call(source: Exact, problem: Gemm, device: int, stream: int, owner: object, apart: Apart) -> _Call:
    return _Call(source, problem, device, stream, apart)


def _check(call: _Call, *arrays: Array) -> None:
    for (name, shown), array in zip(_SHOWN.items(), arrays, strict=False):
        if array.address % (step := call.alignment_bytes[name]):
            raise ArrayRefused(
                f"{shown} starts at {array.address:#x}, which is not a multiple of the {step} bytes that the "
                f"kernel reads or writes at a time: copy it"
            )
