"""Installed: products of a table, in place of torch's own kernels of `mm`, `addmm`, `bmm` and `_scaled_mm`.

The overrides stand below autograd, so that gradients work, also in compiled functions. By default they exist only while
a CUDA graph is captured, where the host's time costs nothing; all other calls are torch's own, without a detour. What
the table does not have, and everything that torch accepts and our kernels don't, goes to torch's kernel.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from gemmtune.exact import Exact, check_machine, check_path, exact
from gemmtune.named import path_of
from gemmtune.torch import captures, kernels, streams, timings
from gemmtune.torch.arguments import check_numbers
from gemmtune.torch.calls import MULTIPLIED, Parts, output_of, parts_of, problem_of, tf32
from gemmtune.torch.operands import Refused, separate, strides_of
from gemmtune.torch.operators import DTYPES
from gemmtune.torch.overrides import MODES, OVERLOADS, Capturing, Overridden, register, shapes_of, weakly
from gemmtune.torch.private import current_device
from space.family import is_own
from space.kinds.gemm import SCALES, Gemm
from tuner.evidence.records import Best
from workers.cuda.copies import Strides
from workers.cuda.machine import this_machine

log = logging.getLogger("gemmtune.torch")

#: Parts of epilogues that these operators have.
_FUSED: Final = frozenset({"alpha", "beta", "bias", *SCALES})
#: Kinds of calls that are remembered; beyond, unknown kinds go to torch.
_MOST_KINDS: Final = 100_000

Kernel = kernels.Kernel


class Product(NamedTuple):
    """The key of a loaded kernel: a problem, and how its operands lie.

    Attributes:
        shape, dtype: of C.
        apart: strides of the operands whose lines are apart, by name.
    """

    problem: Gemm
    device: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    apart: tuple[tuple[str, Strides], ...] = ()


class _Thread(threading.local):
    """A thread's captures: the mode in which it is, and the graphs that it captures."""

    def __init__(self) -> None:
        self.mode: Capturing | None = None
        self.graphs: set[int] = set()


@dataclass(repr=False)
class Installed:
    """An installed table; `remove` uninstalls it.

    Attributes:
        source: where configs come from.
        eager: whether calls outside of captures are looked up too.
        eager_us: least time that a product saves to run on our kernel there.
        number: of this installation: another one's kernels may be of another table.
        enabled: whether calls are looked up at all.
        launched, passed: calls that ran our kernel, and calls that torch ran, of kinds that the table has.
    """

    source: Exact
    eager: bool = False
    eager_us: float = 0.0
    number: int = field(default_factory=count(1).__next__)
    enabled: bool = True
    launched: int = 0
    passed: int = 0
    _offs: int = 0
    _overridden: Overridden | None = None
    _library: Any = None
    _kinds: dict[Hashable, Kernel | None] = field(default_factory=dict)
    _captured_only: set[Hashable] = field(default_factory=set)
    _loaded: dict[Product, Kernel | None] = field(default_factory=dict)
    _wanted: dict[Product, None] = field(default_factory=dict)
    _thread: _Thread = field(default_factory=_Thread)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __repr__(self) -> str:
        # Interpreters print what a call returns: the table has megabytes of evidence and programs.
        counts = f"{len(self.source.bests)} problems, {self.launched} launched, {self.passed} passed"
        return f"<Installed of {self.source.device}: {counts}>"

    @contextmanager
    def off(self) -> Iterator[None]:
        """torch's own kernels inside, in all threads: for a comparison that differs in nothing else."""
        # Counted: what one thread leaves, another may still be in.
        with _CHANGING:
            self._offs += 1
        try:
            yield
        finally:
            with _CHANGING:
                self._offs -= 1

    def _begin(self) -> None:
        """Overrides torch's own kernels, until `remove`; raises as `register` does, and overrides none then."""
        global _installed
        if self._overridden is not None and (self.eager or not MODES):
            self._library = register(self._overridden)
        captures.follow(self)
        self.enabled, _installed = True, self

    def remove(self) -> None:
        """Restores torch's own kernels, for good. Captured graphs keep what they captured."""
        global _installed
        with _CHANGING:
            if captures.followed() is self:
                captures.follow(None)
            self.enabled = False
            if self._library is not None:
                self._library._destroy()
                self._library = None
            if _installed is self:
                _installed = None

    # ------------------------------------------------------------------------------------------------ captures

    def begins(self, graph: int) -> None:
        """Loads the table's kernels before the first capture on a device; then this thread's calls are looked up."""
        try:
            overridden = self._overridden  # another thread may remove it
            if self._offs or not self.enabled or overridden is None:
                return
            with self._lock:
                self._load(current_device())
            if self._thread.mode is None and self._library is None:
                self._thread.mode = Capturing(overridden)
                self._thread.mode.__enter__()
            self._thread.graphs.add(graph)
        except Exception as error:  # whatever fails, the program must still capture its graph
            log.error("this graph is captured with torch's own kernels: %s", error)

    def ended(self, graph: int) -> None:
        """Stops looking up calls after a thread's last capture, and loads the kernels that captures lacked."""
        try:
            if graph not in self._thread.graphs:
                return
            self._thread.graphs.remove(graph)
            if self._thread.mode is not None and not self._thread.graphs:
                mode, self._thread.mode = self._thread.mode, None
                mode.__exit__(None, None, None)
            with self._lock:
                self._load_wanted()
        except Exception as error:  # as above
            log.error("later graphs may be captured with torch's own kernels: %s", error)

    def _load(self, device: int) -> None:
        """Loads kernels of the table's products for dense operands; nothing can be loaded during a capture."""
        products = [_dense(problem, device) for problem in _callable(self.source)]
        missing = [each for each in products if each not in self._loaded]
        begun = time.monotonic()
        for each in missing:
            self._wanted[each] = None
        self._load_wanted()
        if missing:
            log.info("%d kernels were loaded in %.1f s", len(missing), time.monotonic() - begun)
        if any(kernel is not None and kernel.zeroed for kernel in list(self._loaded.values())):
            streams.reserve(device).refill()

    def _load_wanted(self) -> None:
        if self._wanted and not _capturing_at_all():
            # Other threads' captures want more meanwhile.
            for product in list(self._wanted):
                self._prepared(product)
                self._wanted.pop(product, None)

    def _prepared(self, product: Product) -> Kernel | None:
        if product not in self._loaded:
            made = self._made(product)
            # Nobody launches what torch computes, which would ask again.
            if isinstance(made, kernels.Absent) and made.lapse():
                made = self._made(product)
            if isinstance(made, kernels.Absent) and made.pending:
                return None
            self._loaded[product] = made if isinstance(made, Kernel) else None
        return self._loaded[product]

    def _made(self, product: Product) -> Kernel | kernels.Absent:
        problem, device, shape, dtype, apart = product
        # torch sets no device for an operator that Python computes.
        with torch.cuda.device(device) if torch.cuda.is_available() else nullcontext():
            return kernels.prepare(("installed", self.number, product), problem, device, shape, dtype, "none",
                                   source=self.source, strides=dict(apart))  # fmt: skip

    # ------------------------------------------------------------------------------------------------ calls

    def computed(self, overload: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """The product by our kernel; None if torch has to compute it."""
        if self._offs or not self.enabled or timings.at_work():
            return None
        capturing = _capturing(args[0])
        if not (capturing or self.eager):
            return None  # on a stream that is not being captured
        parts = parts_of(overload, args, kwargs)
        if parts is None:
            return None
        a, b, out = parts.a, parts.b, kwargs.get("out")
        added = parts.bias if parts.bias is not None else parts.source
        kind = (
            overload, a.shape, a.stride(), a.dtype, a.get_device(), b.shape, b.stride(), b.dtype, b.get_device(),
            None if added is None else (added.shape, added.stride(), added.dtype, added.get_device()),
            parts.alpha == 1.0, parts.output, parts.promoted, parts.scaling, a.dtype is torch.float32 and tf32(),
        )  # fmt: skip
        found = self._kinds.get(kind, _UNKNOWN)
        if found is _UNKNOWN:
            if len(self._kinds) >= _MOST_KINDS:
                return None
            try:
                found = self._decide(kind, parts, capturing)
            except torch.OutOfMemoryError:
                # Loading takes memory that torch's own kernel may do without; the next call tries again.
                self.passed += 1
                return None
        if found is None or (not capturing and kind in self._captured_only):
            return None
        if out is not None and not (
            found.writes(out)
            and separate(out, found.strides, a, b, parts.bias, parts.source, *(parts.scales or ()))
        ):
            self.passed += 1
            return None
        try:
            made = found.launch(a, b, parts.bias, parts.source, parts.alpha, parts.beta, out, parts.scales)
        except (Refused, torch.OutOfMemoryError):
            # An address that our loads or stores can't take, or no room for the scratch memory.
            self.passed += 1
            return None
        self.launched += 1
        return made

    def _decide(self, kind: Hashable, parts: Parts, capturing: bool) -> Kernel | None:
        """The loaded kernel of a kind of calls; None where torch computes."""
        problem, best = self._best(parts)
        if problem is None or best is None:
            return self._remember(kind, None)
        if _saved_us(best) < self.eager_us:
            # Loaded here all the same, for graphs.
            self._captured_only.add(kind)
        shape, dtype = output_of(parts)
        apart = tuple(strides_of(parts.a, parts.b).items())
        product = Product(problem, parts.a.get_device(), shape, dtype, apart)
        if capturing and product not in self._loaded:
            # Nothing can be loaded now: the next capture will have it.
            self._wanted[product] = None
            return None
        found = self._prepared(product)
        return self._remember(kind, found) if product in self._loaded else None

    def _best(self, parts: Parts) -> tuple[Gemm | None, Best | None]:
        """The problem of a call and its best."""
        problem = problem_of(parts, parts.scaling)
        best = self.source.bests.get(problem.key) if problem else None
        if best is None and parts.scaling == "scaled":
            # Tables from before scales had a word of their own call them alpha.
            problem = problem_of(parts)
            best = self.source.bests.get(problem.key) if problem else None
        return problem, best if best is None or not parts.scaling or _takes_scales(best) else None

    def _remember(self, kind: Hashable, found: Kernel | None) -> Kernel | None:
        self._kinds[kind] = found
        return found


#: Host time that a launch of ours costs beyond torch's own.
EAGER_US: Final = 15.0
_UNKNOWN: Final[Any] = object()
_installed: Installed | None = None
#: Held while tables are installed, removed or switched off.
_CHANGING: Final = threading.RLock()


def install(
    table: str | Path, *, min_gain: float | None = None, eager: bool = False, eager_us: float = EAGER_US,
    key: str = "CUDA", stale: bool = False,
) -> Installed:  # fmt: skip
    """Runs the products of a table on our kernels, in the whole process, until `remove`.

    CUDA graphs that are captured from now on hold them; kernels are loaded when the first capture begins. A product
    whose rows lie apart is loaded after the first capture that meets it, and held by later ones. An earlier table is
    replaced.

    Args:
        table: a table of `gemmtune export --format json`, or a folder of `--format bundle`.
        min_gain: entries whose interval against the library's first choice begins lower are left to torch; default: the
            margin of the export, and 1.02 for a table of every best.
        eager: run them outside of captures too, at the cost of a detour through Python for every call of `mm`, `addmm`,
            `bmm` and `_scaled_mm`: for large products, as in prefill. Compiled functions that are not captured count as
            eager.
        eager_us: products that save less time than this use our kernels in captured graphs only; elsewhere a launch
            from Python costs the host more than they save.
        key: dispatch key whose kernels are overridden.
        stale: take a table that was measured with a driver of another branch, or with another version of cuBLASLt.

    Raises:
        TableError: the table can't be read, is not what its hashes say, or is of another machine. After any error an
            earlier table stays installed.
        RuntimeError: this version of torch can't be overridden, or allows one override only and another library has it.
        ValueError: an argument is no path or no number, or torch does not have the dispatch key `key`, whose kernels
            `eager` calls need.
    """
    check_path(str(table), "install()")
    path = path_of(table, "table", "a table (….json) or a folder of `gemmtune export`")
    check_numbers(eager_us=eager_us, **({} if min_gain is None else {"min_gain": min_gain}))
    source = exact(path, guard=True, min_gain=min_gain)
    if programs := check_machine(table, source, this_machine(), stale):
        log.warning("%s: %s", table, programs)
    if not hasattr(torch.library, "get_kernel"):
        raise RuntimeError(f"torch {torch.__version__} can't be overridden: it needs 2.9 or newer (library.get_kernel)")
    with _CHANGING:
        made, problems = Installed(source, eager, eager_us), [best.problem for best in source.bests.values()]
        matrices, batches = shapes_of(problems, batches=False), shapes_of(problems, batches=True)
        made._overridden = Overridden(key, _overloads(source), matrices, batches, weakly(made.computed))
        if not (eager or MODES):
            log.warning("torch %s does not compile inside modes: every product takes a detour through Python, even "
                        "outside of captures", torch.__version__)  # fmt: skip
        earlier = _installed
        if earlier is not None:
            earlier.remove()  # first: there are versions of torch that allow only one override
        try:
            made._begin()
        except BaseException:
            if earlier is not None:
                earlier._begin()
            raise
    log.info("%s: %d problems of %s are installed", table, len(source.bests), source.device)
    return made


def _overloads(source: Exact) -> frozenset[str]:
    """The overloads by which a table's products may come."""
    scaled = any(_takes_scales(best) for best in source.bests.values())
    return frozenset(each for each in OVERLOADS if scaled or not each.startswith("_scaled_mm"))


def _callable(source: Exact) -> Iterator[Gemm]:
    """The problems of a table that may be calls of operators that are overridden."""
    for best in source.bests.values():
        problem = best.problem
        if not isinstance(problem, Gemm) or not (_takes_scales(best) or DTYPES[problem.dtype_a] in MULTIPLIED):
            continue
        # `bmm` adds nothing, and `addmm` one matrix or one vector.
        parts, added = problem.epilogue_parts, problem.epilogue_parts & {"beta", "bias"}
        if parts <= _FUSED and len(added) < 2 and (problem.batch == 1 or not parts):
            yield problem


def _dense(problem: Gemm, device: int) -> Product:
    """A problem on dense operands."""
    shape = (problem.m, problem.n) if problem.batch == 1 else (problem.batch, problem.m, problem.n)
    return Product(problem, device, shape, DTYPES[problem.dtype_c])


def _capturing(a: Tensor) -> bool:
    return bool(a.is_cuda and torch.cuda.is_current_stream_capturing())


def _capturing_at_all() -> bool:
    """Whether this thread's current stream is being captured."""
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def _saved_us(best: Best) -> float:
    """Time that a best saves against the library's first choice."""
    return best.median_us * (best.versus_first.value - 1) if best.versus_first else 0.0


def _takes_scales(best: Best) -> bool:
    """Whether a best reads scales on the device. For alpha only the library's do: ours take it from the host."""
    problem = best.problem
    if isinstance(problem, Gemm) and problem.scales:
        return True
    eight = isinstance(problem, Gemm) and problem.dtype_a.startswith("fp8") and "alpha" in problem.epilogue_parts
    return eight and not is_own(best.config)
