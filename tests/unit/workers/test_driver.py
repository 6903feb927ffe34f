"""Launches on a driver that notes its calls: attributes of functions, grids, and what a launch is given."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from workers.cuda import driver
from workers.cuda.driver import Arguments, CudaError, Launch, PlannedFunction

REAL: Any = driver.cu
SMEM, NON_PORTABLE = (
    REAL.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    REAL.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
)
SM_COUNT = 132


class Driver:
    """Holds two blocks on each multiprocessor, or 30 clusters of any size."""

    def __init__(self) -> None:
        self.per_sm, self.clusters, self.error = 2, 30, REAL.CUresult.CUDA_SUCCESS
        self.attributes: list[tuple[Any, int]] = []
        self.launched: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(REAL, name)

    def cuFuncSetAttribute(self, function: str, attribute: Any, value: int) -> tuple[int]:  # noqa: ANN401, N802
        self.attributes.append((attribute, value))
        return (0,)

    def cuOccupancyMaxActiveClusters(self, function: str, config: Any) -> tuple[int, int]:  # noqa: ANN401, N802
        assert int(config.attrs[0].value.clusterDim.x) == int(config.gridDimX) > 1
        return 0, self.clusters

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(  # noqa: N802
        self, function: str, threads: int, smem_bytes: int
    ) -> tuple[int, int]:
        return 0, self.per_sm

    def cuLaunchKernelEx(  # noqa: N802
        self, config: Any, function: str, address: int, extra: int  # noqa: ANN401
    ) -> tuple[Any]:
        ids = {each.id for each in config.attrs or ()}
        kinds = REAL.CUlaunchAttributeID
        self.launched.append({
            "grid": int(config.gridDimX), "threads": int(config.blockDimX), "smem": int(config.sharedMemBytes),
            "pdl": kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION in ids,
            "together": kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE in ids, "stream": int(config.hStream),
            "address": address,
        })  # fmt: skip
        return (self.error,)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(driver, "cu", made)
    return made


def stream(handle: int) -> Any:  # noqa: ANN401
    return SimpleNamespace(handle=REAL.CUstream(handle))


@pytest.mark.parametrize(
    ("cluster", "smem_bytes", "attributes"),
    [(1, 0, []), (8, 0, []), (16, 0, [(NON_PORTABLE, 1)]), (2, 100_000, [(SMEM, 100_000)])],
)
def test_a_function_is_told_of_what_exceeds_the_usual_limits(
    stub: Driver, cluster: int, smem_bytes: int, attributes: list[tuple[Any, int]]
) -> None:
    Launch("gemm", 128, smem_bytes, cluster)
    assert stub.attributes == attributes


@pytest.mark.parametrize(
    ("cluster", "most", "clusters"),
    [(1, 1_000, 2 * SM_COUNT), (1, 10, 10), (4, 1_000, 30), (4, 29, 29)],
)
def test_a_grid_is_filled_with_what_the_device_holds_or_has_work_for(
    stub: Driver, cluster: int, most: int, clusters: int
) -> None:
    launch = Launch("gemm", 128, cluster=cluster)
    assert launch.fill(most, SM_COUNT) == clusters
    launch(stream(5), Arguments())
    assert (stub.launched[0]["grid"], launch.most) == (clusters * cluster, 0)


def test_a_function_of_which_nothing_fits_is_left_for_the_driver_to_refuse(stub: Driver) -> None:
    stub.per_sm = stub.clusters = 0
    assert [Launch("gemm", 128, cluster=cluster).fill(10, SM_COUNT) for cluster in (1, 4)] == [1, 1]


@pytest.mark.parametrize("flags", [{}, {"pdl": True}, {"together": True}])
def test_a_launch_bound_to_a_stream_keeps_its_grid_and_its_attributes(stub: Driver, flags: dict[str, bool]) -> None:
    launch, arguments = Launch("gemm", 384, 1024, **flags), Arguments(ctypes.c_int(7))
    launch.set_grid(12)
    ready = launch.ready(stream(5), arguments)
    launch.set_grid(13)
    launch(stream(6), arguments)
    ready()
    usual = {"threads": 384, "smem": 1024, "pdl": False, "together": False, "address": arguments.address} | flags
    assert stub.launched == [{"grid": 13, "stream": 6} | usual, {"grid": 12, "stream": 5} | usual]


@pytest.mark.parametrize("bound", [lambda launch, *at: launch.ready(*at)(), lambda launch, *at: launch(*at)])
@pytest.mark.parametrize(("name", "sticky"), [("COOPERATIVE_LAUNCH_TOO_LARGE", False), ("ILLEGAL_ADDRESS", True)])
def test_a_launch_that_is_refused_says_whether_the_context_is_lost(
    stub: Driver, bound: Callable[..., None], name: str, sticky: bool
) -> None:
    stub.error = getattr(REAL.CUresult, f"CUDA_ERROR_{name}")
    with pytest.raises(CudaError, match=f"cuLaunchKernelEx: CUDA_ERROR_{name}") as refused:
        bound(Launch("gemm", 128), stream(5), Arguments())
    assert refused.value.sticky == sticky


@pytest.mark.parametrize(("together", "most"), [(False, 1_000), (True, 0)])
def test_a_planned_grid_is_sized_where_it_is_launched_unless_its_arguments_depend_on_it(
    stub: Driver, together: bool, most: int
) -> None:
    launch = Launch(PlannedFunction("gemm", {1: SM_COUNT}.__getitem__), 384, 1024, together=together)
    assert (launch.fill(1_000, SM_COUNT), launch.most) == (SM_COUNT, most)
    assert launch.described() == ("gemm", 384, 1024, 1, SM_COUNT, 0, int(together))
    assert stub.attributes == []
