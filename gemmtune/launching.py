"""`gemmtune.launch`: the measured kernel of a product on arrays of any library that speaks DLPack."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from typing import Any, Final

from gemmtune.arrays import Array, ArrayRefused, array_of, problem_of
from gemmtune.exact import Exact, exact
from space.kinds.gemm import Gemm
from space.registry import family_named
from tuner.settings import settings

_LOCK: Final = threading.Lock()
_NOWHERE_BYTES: Final = 1024


def launch(a: Any, b: Any, out: Any, stream: int = 0, *, table: str | Path | None = None) -> None:  # noqa: ANN401
    """Enqueues out = a · b, computed by the kernel that was measured for exactly this product.

    The first call of a product loads its kernel; later ones write addresses and launch. Calls on one stream may follow
    one another without waiting.

    Args:
        a, b, out: [M,K], [K,N] and [M,N], or batches of them, in one GPU's memory; they speak DLPack.
        stream: handle of a CUDA stream, as `cupy.cuda.Stream.ptr` gives it; 0 for the default stream.
        table: a table or a bundle of `gemmtune export`; GEMMTUNE_TABLE by default.

    Raises:
        ArrayRefused: the table has no kernel of ours for this product, or no kernel takes these arrays. Nothing was
            launched.
        TableError: the table can't be read.
    """
    arrays = array_of(a, "a"), array_of(b, "b"), array_of(out, "out")
    problem = problem_of(*arrays)
    with _LOCK:
        call = _call(_source(str(table or settings().table or "")), problem, arrays[0].device, stream)
        _check(call, arrays)
        at_a, at_b, at_c = (array.address for array in arrays)
        call.on(at_a, at_b, at_c, 0, 0, 1.0, 0.0)


class _Call:
    """A kernel on one stream of one GPU, with scratch memory of its own."""

    def __init__(self, source: Exact, problem: Gemm, device: int, stream: int) -> None:
        from workers.build import BuildFailure, compile_source
        from workers.builder import source_of
        from workers.cuda.calls import Call
        from workers.cuda.device import open_device
        from workers.cuda.driver import Borrowed, Buffer

        facts = open_device(device)
        found = source.find(problem, facts.name)
        config, program = found.config, found.program
        if config is None or not family_named(config.family).own:
            raise ArrayRefused(f"{problem.title} on {facts.name}: {found.why}; use your library's own product")
        if not program:
            built = compile_source(source_of(problem, config, facts.arch), facts.arch, settings().cache_dir)
            if isinstance(built, BuildFailure) or built.digest != found.build_digest:
                raise ArrayRefused(f"{problem.title}: the measured program can't be built here: use a bundle")
            program = built.cubin
        call = Call(problem, config, program, facts.profile, Buffer.allocate(_NOWHERE_BYTES).address)
        self.alignment_bytes = dict(call.alignment_bytes)
        self.on = call.on(Borrowed(stream))
        self.on.bring({name: _memory(each.size_bytes, each.zeroed) for name, each in call.scratch.items()})


def _memory(size_bytes: int, zeroed: bool) -> int:
    from cuda.bindings import driver as cu

    from workers.cuda.driver import Buffer, check

    made = Buffer.allocate(size_bytes)
    if zeroed:
        check("cuMemsetD8", cu.cuMemsetD8(made.address, 0, made.size_bytes))
        check("cuCtxSynchronize", cu.cuCtxSynchronize())
    return made.address


@cache
def _source(table: str) -> Exact:
    if not table:
        raise ArrayRefused("no table is given: name one, or set GEMMTUNE_TABLE to a table or a bundle")
    return exact(Path(table))


@cache
def _call(source: Exact, problem: Gemm, device: int, stream: int) -> _Call:
    return _Call(source, problem, device, stream)


def _check(call: _Call, arrays: tuple[Array, ...]) -> None:
    for name, array in zip(("a", "b", "c"), arrays, strict=True):
        if array.address % call.alignment_bytes[name]:
            shown = "out" if name == "c" else name
            raise ArrayRefused(
                f"{shown} starts at {array.address:#x}, which is not a multiple of the {call.alignment_bytes[name]} "
                f"bytes that the kernel reads or writes at a time: copy it"
            )
