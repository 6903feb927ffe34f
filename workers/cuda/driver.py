"""The CUDA driver API as this process uses it: checked calls, memory, streams, events, graphs, launches."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from cuda.bindings import driver as cu

#: Errors of one call alone. After any other error the context may be lost, and only a new process helps.
_PASSING: Final = frozenset(
    {
        "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_NOT_FOUND",
        "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "CUDA_ERROR_NOT_SUPPORTED",
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "CUDA_ERROR_INVALID_CLUSTER_SIZE", "CUDA_ERROR_INVALID_SOURCE",
        "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
    }
)  # fmt: skip


#: Blocks of the largest cluster that every device launches without a non-portable attribute.
PORTABLE_CLUSTER: Final = 8


class CudaError(Exception):
    """A driver call failed.

    Attributes:
        name: as in `CUDA_ERROR_ILLEGAL_ADDRESS`.
        sticky: whether the context is lost.
    """

    def __init__(self, call: str, name: str) -> None:
        super().__init__(f"{call}: {name}")
        self.name = name
        self.sticky = name not in _PASSING


def check(call: str, result: Sequence[Any]) -> Any:  # noqa: ANN401  (whatever the driver call returns)
    """The value of a driver call, which returns its error first.

    Raises:
        CudaError: the call failed.
    """
    error, *values = result
    if int(error) != 0:
        raise CudaError(call, getattr(error, "name", str(error)))
    return values[0] if len(values) == 1 else tuple(values)


@dataclass(frozen=True, slots=True)
class Buffer:
    """Device memory."""

    address: int
    size_bytes: int

    @classmethod
    def allocate(cls, size_bytes: int) -> Buffer:
        """Allocates device memory, 256-byte aligned.

        Raises:
            CudaError: out of memory.
        """
        return cls(int(check("cuMemAlloc", cu.cuMemAlloc(max(size_bytes, 16)))), size_bytes)

    def free(self) -> None:
        """Gives the memory back."""
        check("cuMemFree", cu.cuMemFree(self.address))


class Stream:
    """An ordered queue of work."""

    def __init__(self) -> None:
        self.handle = check("cuStreamCreate", cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def synchronize(self) -> None:
        """Waits for all work; kernel errors surface here."""
        check("cuStreamSynchronize", cu.cuStreamSynchronize(self.handle))

    @property
    def capturing(self) -> bool:
        """Whether its work is recorded into a graph, by whomever."""
        return bool(int(check("cuStreamIsCapturing", cu.cuStreamIsCapturing(self.handle))))

    @contextmanager
    def capture(self) -> Iterator[list[Graph]]:
        """Records the launches inside into a graph, the only element of the list afterwards."""
        made: list[Graph] = []
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        check("cuStreamBeginCapture", cu.cuStreamBeginCapture(self.handle, mode))
        try:
            yield made
        except BaseException:
            # The error inside is the one to report; discard the partial graph.
            error, graph = cu.cuStreamEndCapture(self.handle)
            if int(error) == 0:
                cu.cuGraphDestroy(graph)
            raise
        made.append(Graph(check("cuStreamEndCapture", cu.cuStreamEndCapture(self.handle))))


class Borrowed(Stream):
    """A stream that another library made, by its handle."""

    def __init__(self, handle: int) -> None:
        self.handle = cu.CUstream(handle)


class Graph:
    """An executable graph."""

    def __init__(self, graph: Any) -> None:  # noqa: ANN401
        self._handle = check("cuGraphInstantiate", cu.cuGraphInstantiate(graph, 0))
        check("cuGraphDestroy", cu.cuGraphDestroy(graph))

    def upload(self, stream: Stream) -> None:
        """Uploads it to the device behind the work of a stream, so that the first launch need not."""
        check("cuGraphUpload", cu.cuGraphUpload(self._handle, stream.handle))

    def launch(self, stream: Stream) -> None:
        """Enqueues one replay."""
        check("cuGraphLaunch", cu.cuGraphLaunch(self._handle, stream.handle))

    def destroy(self) -> None:
        """Frees the graph."""
        check("cuGraphExecDestroy", cu.cuGraphExecDestroy(self._handle))


class Event:
    """A point in a stream's work."""

    def __init__(self) -> None:
        self._handle = check("cuEventCreate", cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DEFAULT))

    def record(self, stream: Stream) -> None:
        """Marks the stream's current end."""
        check("cuEventRecord", cu.cuEventRecord(self._handle, stream.handle))

    def hold(self, stream: Stream) -> None:
        """Makes later work of another stream wait for it."""
        check("cuStreamWaitEvent", cu.cuStreamWaitEvent(stream.handle, self._handle, 0))

    def wait(self) -> None:
        """Waits until the stream has passed it; kernel errors surface here."""
        check("cuEventSynchronize", cu.cuEventSynchronize(self._handle))

    def until_us(self, end: Event) -> float:
        """Microseconds from this event to a later one, both passed."""
        return float(check("cuEventElapsedTime", cu.cuEventElapsedTime(self._handle, end._handle))) * 1e3

    def destroy(self) -> None:
        """Frees the event."""
        check("cuEventDestroy", cu.cuEventDestroy(self._handle))


class Stopwatch:
    """Two events around work on a stream."""

    def __init__(self) -> None:
        self._begin, self._end = Event(), Event()

    @contextmanager
    def around(self, stream: Stream) -> Iterator[None]:
        """Times the work that is enqueued inside."""
        self._begin.record(stream)
        yield
        self._end.record(stream)

    def wait(self) -> None:
        """Waits until that work is done."""
        self._end.wait()

    @property
    def us(self) -> float:
        """Time of that work in microseconds; it must be done."""
        return self._begin.until_us(self._end)

    def destroy(self) -> None:
        """Frees the events."""
        self._begin.destroy()
        self._end.destroy()


class Arguments:
    """Kernel arguments, packed once: the array of pointers that a launch takes, and what it points to.

    Attributes:
        values: what it points to; a launch copies them, so that they may be changed after it.
        address: of the array of pointers.
    """

    def __init__(self, *values: ctypes._SimpleCData[Any] | ctypes.Array[Any] | ctypes.Structure) -> None:
        self.values: tuple[Any, ...] = values
        self._pointers = array("Q", map(ctypes.addressof, values))
        self.address, _ = self._pointers.buffer_info()


class Module:
    """A loaded cubin."""

    def __init__(self, cubin: bytes) -> None:
        self._library = check("cuLibraryLoadData", cu.cuLibraryLoadData(cubin, [], [], 0, [], [], 0))

    def function(self, name: str) -> Any:  # noqa: ANN401
        """An entry point as a `CUfunction`."""
        kernel = check("cuLibraryGetKernel", cu.cuLibraryGetKernel(self._library, name.encode()))
        return check("cuKernelGetFunction", cu.cuKernelGetFunction(kernel))

    def unload(self) -> None:
        """Frees the program."""
        check("cuLibraryUnload", cu.cuLibraryUnload(self._library))


@dataclass(frozen=True, slots=True)
class PlannedFunction:
    """An entry point that is named, not loaded: its launches are written down, not made.

    Attributes:
        clusters: how many clusters of a size the device holds, one block on each multiprocessor.
    """

    name: str
    clusters: Callable[[int], int]


class Launch:
    """A function with its grid, ready to be launched many times.

    Args:
        cluster: blocks of a cluster; the grid must be a multiple of it.
        pdl: whether blocks may start before the kernel before has ended (programmatic stream serialization).
        together: whether blocks wait for one another, so that all must run at the same time (cooperative launch). Not
            with `pdl`: CUDA's documentation does not say what both together mean.

    Attributes:
        most: of a planned launch that `fill` sized, the most clusters that have work; otherwise 0.
    """

    def __init__(
        self,
        function: Any,  # noqa: ANN401
        threads: int,
        smem_bytes: int = 0,
        cluster: int = 1,
        *,
        pdl: bool = False,
        together: bool = False,
    ) -> None:
        self._function = function
        self._cluster = cluster
        self._threads, self._smem_bytes = threads, smem_bytes
        self._attributes = [_cluster_dimension(cluster)] * (cluster > 1) + [_programmatic_start()] * pdl
        self._attributes += [_cooperative()] * together
        self._pdl, self._together = pdl, together
        self.most = 0
        self._config = self._configured(cluster)
        if isinstance(function, PlannedFunction):
            return
        if smem_bytes:
            attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check("cuFuncSetAttribute", cu.cuFuncSetAttribute(function, attribute, smem_bytes))
        if cluster > PORTABLE_CLUSTER:
            attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            check("cuFuncSetAttribute", cu.cuFuncSetAttribute(function, attribute, 1))

    def resident(self, sm_count: int) -> int:
        """Clusters (blocks, without clusters) that the device holds at once."""
        if isinstance(self._function, PlannedFunction):
            return self._function.clusters(self._cluster)
        if self._cluster > 1:
            call = "cuOccupancyMaxActiveClusters"
            return int(check(call, cu.cuOccupancyMaxActiveClusters(self._function, self._config)))
        call = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        threads, smem_bytes = self._threads, self._smem_bytes
        per_sm = check(call, cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(self._function, threads, smem_bytes))
        return int(per_sm) * sm_count

    def fill(self, most: int, sm_count: int) -> int:
        """Sets the grid to as many clusters as the device holds at once, at most `most`; returns their number."""
        clusters = max(1, min(most, self.resident(sm_count)))
        self.set_grid(clusters)
        if isinstance(self._function, PlannedFunction) and not self._together:
            self.most = most
        return clusters

    def described(self) -> tuple[str, int, int, int, int, int, int]:
        """Entry point, threads, shared memory in bytes, blocks of a cluster, blocks, and whether it is `pdl` and
        `together`; of a planned launch."""
        grid = int(self._config.gridDimX)
        return (self._function.name, self._threads, self._smem_bytes, self._cluster, grid, int(self._pdl),
                int(self._together))  # fmt: skip

    def set_grid(self, clusters: int) -> None:
        """Sets the number of clusters (or blocks) to launch."""
        self._config.gridDimX = clusters * self._cluster

    def __call__(self, stream: Stream, arguments: Arguments) -> None:
        self._config.hStream = stream.handle
        check("cuLaunchKernelEx", cu.cuLaunchKernelEx(self._config, self._function, arguments.address, 0))

    def ready(self, stream: Stream, arguments: Arguments) -> Callable[[], None]:
        """The launch bound to one stream and the current grid, for callers that count microseconds of the host.

        What it does is the driver's call and nothing else. The arguments must live as long as it; their values may
        change between two launches.
        """
        config = self._configured(int(self._config.gridDimX))
        config.hStream = stream.handle
        call, function, address = cu.cuLaunchKernelEx, self._function, arguments.address

        def launch() -> None:
            (error,) = call(config, function, address, 0)
            if error:
                raise CudaError("cuLaunchKernelEx", error.name)

        return launch

    def _configured(self, blocks: int) -> Any:  # noqa: ANN401
        made = cu.CUlaunchConfig()
        made.gridDimX, made.gridDimY, made.gridDimZ = blocks, 1, 1
        made.blockDimX, made.blockDimY, made.blockDimZ = self._threads, 1, 1
        made.sharedMemBytes = self._smem_bytes
        if self._attributes:
            made.attrs, made.numAttrs = self._attributes, len(self._attributes)
        return made


def _cluster_dimension(blocks: int) -> cu.CUlaunchAttribute:
    made = cu.CUlaunchAttribute()
    made.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    value = made.value.clusterDim
    value.x, value.y, value.z = blocks, 1, 1
    return made


def _cooperative() -> cu.CUlaunchAttribute:
    made = cu.CUlaunchAttribute()
    made.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    made.value.cooperative = 1
    return made


def _programmatic_start() -> cu.CUlaunchAttribute:
    made = cu.CUlaunchAttribute()
    made.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    made.value.programmaticStreamSerializationAllowed = 1
    return made


class HostBuffer:
    """Page-locked host memory, for copies on a stream that the host does not wait for."""

    def __init__(self, size_bytes: int) -> None:
        self.address = int(check("cuMemHostAlloc", cu.cuMemHostAlloc(size_bytes, 0)))
        self.size_bytes = size_bytes

    def fetch(self, address: int, stream: Stream) -> None:
        """Enqueues a copy of device bytes to this memory."""
        call = "cuMemcpyDtoHAsync"
        check(call, cu.cuMemcpyDtoHAsync(self.address, address, self.size_bytes, stream.handle))

    def free(self) -> None:
        """Gives the memory back."""
        check("cuMemFreeHost", cu.cuMemFreeHost(self.address))
