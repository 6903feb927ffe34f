"""Installed: products of a table, in place of torch's own kernels of `mm`, `addmm`, `bmm` and `_scaled_mm`.

The overrides stand below autograd, so that gradients work, and compiled functions and captured graphs use them. What
the table does not have, and everything that torch accepts and our kernels don't, goes to torch's kernel.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from gemmtune.exact import Exact, exact
from gemmtune.torch import kernels
from gemmtune.torch.operands import OUTPUT_OF, OUTPUTS, Refused, problem_of, separate, strides_of
from space.kinds.gemm import Gemm
from space.registry import family_named
from tuner.evidence.records import Best
from tuner.tables.exporters.guard import MIN_GAIN

log = logging.getLogger("gemmtune.torch")

#: Overloads that are overridden.
OVERLOADS: Final = ("mm", "mm.out", "addmm", "addmm.out", "bmm", "bmm.out", "_scaled_mm", "_scaled_mm.out")
#: Places of the other arguments of `_scaled_mm`.
_SCALES, _BIAS, _SCALE_RESULT, _OUT_DTYPE, _FAST = slice(2, 4), 4, 5, 6, 7
#: dtypes that torch's own operators multiply on a GPU; others only by `_scaled_mm`, or not at all.
_MULTIPLIED: Final = frozenset({torch.bfloat16, torch.float16, torch.float32})
#: `_scaled_mm` takes K and N that are multiples of this.
_STEP: Final = 16
#: Any alpha but 1: scales multiply the product as alpha does.
_SCALED: Final = 2.0
#: Kinds of calls that are remembered; beyond, unknown kinds go to torch.
_MOST_KINDS: Final = 100_000

Kernel = kernels.Kernel


class Parts(NamedTuple):
    """A call as our kernels take it; a tuple, because the host's time counts.

    Attributes:
        output: dtype of C.
        scales: of A and B, f32 on the device: one each, or one for each row and column.
        scaling: which of `space.kinds.gemm.SCALES` they are; empty without.
        promoted: whether sums of 8-bit floats are in true f32.
    """

    a: Tensor
    b: Tensor
    bias: Tensor | None = None
    source: Tensor | None = None
    alpha: float = 1.0
    beta: float = 0.0
    output: torch.dtype | None = None
    scales: tuple[Tensor, Tensor] | None = None
    scaling: str = ""
    promoted: bool = False


@dataclass
class Installed:
    """An installed table; `remove` takes it out again.

    Attributes:
        source: where configs come from.
        eager_us: least time that a product saves to run on our kernel outside of graphs.
        number: of this installation: another one's kernels may be of another table.
        enabled: whether calls are looked up at all.
        launched, passed: calls that ran our kernel, and calls that torch ran, of kinds that the table has.
    """

    source: Exact
    eager_us: float = 0.0
    number: int = field(default_factory=count(1).__next__)
    enabled: bool = True
    launched: int = 0
    passed: int = 0
    _kinds: dict[Hashable, Kernel | None] = field(default_factory=dict)
    _captured_only: set[Hashable] = field(default_factory=set)
    _library: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def off(self) -> Iterator[None]:
        """torch's own kernels inside, in all threads: for a comparison that differs in nothing else."""
        before, self.enabled = self.enabled, False
        try:
            yield
        finally:
            self.enabled = before

    def remove(self) -> None:
        """Restores torch's own kernels. Captured graphs keep what they captured."""
        global _installed
        if self._library is not None:
            self._library._destroy()
            self._library = None
        if _installed is self:
            _installed = None

    def computed(self, overload: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """The product by our kernel; None if torch has to compute it."""
        parts = _parts(overload, args, kwargs)
        if parts is None:
            return None
        a, b, out = parts.a, parts.b, kwargs.get("out")
        added = parts.bias if parts.bias is not None else parts.source
        kind = (
            overload, a.shape, a.stride(), a.dtype, a.get_device(), b.shape, b.stride(), b.dtype, b.get_device(),
            None if added is None else (added.shape, added.stride(), added.dtype, added.get_device()),
            parts.alpha == 1.0, parts.output, parts.promoted, parts.scaling, a.dtype is torch.float32 and _tf32(),
        )  # fmt: skip
        found = self._kinds.get(kind, _UNKNOWN)
        if found is _UNKNOWN:
            found = self._decide(kind, parts)
        if found is None or (kind in self._captured_only and not _capturing(a)):
            return None
        if out is not None and not (
            found.writes(out)
            and separate(out, found.strides, a, b, parts.bias, parts.source, *(parts.scales or ()))
        ):
            self.passed += 1
            return None
        try:
            made = found.launch(a, b, parts.bias, parts.source, parts.alpha, parts.beta, out, parts.scales)
        except Refused:
            # An address that our loads or stores can't take.
            self.passed += 1
            return None
        self.launched += 1
        return made

    def _decide(self, kind: Hashable, parts: Parts) -> Kernel | None:
        """The loaded kernel of a kind of calls; None where torch computes."""
        problem, best = self._best(parts)
        if problem is None or best is None:
            return self._remember(kind, None)
        if _saved_us(best) < self.eager_us:
            # Loaded here all the same, for graphs.
            self._captured_only.add(kind)
        if _capturing(parts.a):
            # Nothing can be loaded now; the next call outside of a capture loads it.
            return None
        shape, dtype = _output(parts)
        prepared = kernels.prepare(
            ("installed", self.number, kind), problem, parts.a.get_device(), shape, dtype, "none", source=self.source,
            strides=strides_of(parts.a, parts.b),
        )  # fmt: skip
        return self._remember(kind, prepared if isinstance(prepared, Kernel) else None)

    def _best(self, parts: Parts) -> tuple[Gemm | None, Best | None]:
        """The problem of a call and its best."""
        problem = _problem(parts, parts.scaling)
        best = self.source.bests.get(problem.key) if problem else None
        if best is None and parts.scaling == "scaled":
            # Tables from before scales had a word of their own call them alpha.
            problem = _problem(parts)
            best = self.source.bests.get(problem.key) if problem else None
        return problem, best if best is None or not parts.scaling or _takes_scales(best) else None

    def _remember(self, kind: Hashable, found: Kernel | None) -> Kernel | None:
        with self._lock:
            if len(self._kinds) < _MOST_KINDS:
                self._kinds[kind] = found
        return found


#: What a launch of ours costs the host more than torch's own.
EAGER_US: Final = 15.0
_UNKNOWN: Final[Any] = object()
_installed: Installed | None = None
_INSTALLING: Final = threading.Lock()


def install(
    table: str | Path, *, min_gain: float = MIN_GAIN, eager_us: float = EAGER_US, key: str = "CUDA"
) -> Installed:
    """Runs the products of a table on our kernels, in the whole process, until `remove`.

    An earlier table is replaced.

    Args:
        table: a table of `gemmtune export --format json`, or a folder of `--format bundle`.
        min_gain: entries whose interval against the library's first choice begins lower are left to torch.
        eager_us: products that save less time than this run on our kernels in captured graphs alone; elsewhere a launch
            from Python costs the host more than they save.
        key: dispatch key whose kernels are overridden.

    Raises:
        TableError: the table can't be read, or is not what its hashes say; nothing is installed.
        RuntimeError: this version of torch has no `torch.library.get_kernel`.
    """
    global _installed
    source = exact(Path(table), min_gain)
    if not hasattr(torch.library, "get_kernel"):
        raise RuntimeError(f"torch {torch.__version__} can't be overridden: install one with torch.library.get_kernel")
    with _INSTALLING:
        if _installed is not None:
            _installed.remove()
        made = Installed(source, eager_us)
        originals = dict(_originals(key, source))
        library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            # That a registered kernel is overridden is what was asked for.
            warnings.simplefilter("ignore")
            for overload, original in originals.items():
                library.impl(overload, _override(made, overload, original), key, with_keyset=True)
        made._library = library
        _installed = made
    log.info("%s: %d problems of %s are installed", table, len(source.bests), source.device)
    return made


def _originals(key: str, source: Exact) -> Iterator[tuple[str, Any]]:
    """torch's own kernels, for a key, of the overloads by which a table's products may come."""
    scaled = any(_takes_scales(best) for best in source.bests.values())
    for overload in OVERLOADS:
        if overload.startswith("_scaled_mm") and not scaled:
            continue
        try:
            yield overload, torch.library.get_kernel(f"aten::{overload}", key)
        except RuntimeError as error:
            log.info("aten::%s is not overridden: %s", overload, error)


def _tf32() -> bool:
    """Whether torch may multiply f32 as tf32; not where settings contradict each other, which torch refuses to tell."""
    try:
        return bool(torch.get_float32_matmul_precision() != "highest")
    except RuntimeError:
        return False


def _capturing(a: Tensor) -> bool:
    return bool(a.is_cuda and torch.cuda.is_current_stream_capturing())


def _saved_us(best: Best) -> float:
    """Time that a best saves against the library's first choice."""
    return best.median_us * (best.versus_first.value - 1) if best.versus_first else 0.0


def _takes_scales(best: Best) -> bool:
    """Whether a best reads scales on the device: with alpha, which ours take from the host, only the library's do."""
    problem = best.problem
    if isinstance(problem, Gemm) and problem.scales:
        return True
    eight = isinstance(problem, Gemm) and problem.dtype_a.startswith("fp8") and "alpha" in problem.epilogue_parts
    return eight and not family_named(best.config.family).own


def _override(made: Installed, overload: str, original: Any) -> Callable[..., Tensor]:  # noqa: ANN401
    place, shapes = (1 if overload.startswith("addmm") else 0), _shapes_of(made.source, overload.startswith("bmm"))

    def run(keyset: Any, *args: Any, **kwargs: Any) -> Tensor:  # noqa: ANN401
        # Most of what is passed on ends here: the host's time counts.
        if (args[place].shape, args[place + 1].shape) in shapes and made.enabled:
            found = made.computed(overload, args, kwargs)
            if found is not None:
                return found
        result: Tensor = original.call_boxed(keyset, *args, **kwargs)
        return result

    return run


def _shapes_of(source: Exact, batches: bool) -> frozenset[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Shapes of A and B, as matrices or as batches, in the products of a table."""
    problems = [best.problem for best in source.bests.values() if isinstance(best.problem, Gemm)]
    if batches:
        return frozenset(((each.batch, each.m, each.k), (each.batch, each.k, each.n)) for each in problems)
    return frozenset(((each.m, each.k), (each.k, each.n)) for each in problems if each.batch == 1)


def _scaled_parts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Parts | None:
    """The operands of `_scaled_mm`; None where blocks have scales, and where torch has something to say."""
    bias, scale_result, output, fast = (
        args[place] if len(args) > place else kwargs.get(name, usual)
        for place, name, usual in ((_BIAS, "bias", None), (_SCALE_RESULT, "scale_result", None),
                                   (_OUT_DTYPE, "out_dtype", None), (_FAST, "use_fast_accum", False))
    )  # fmt: skip
    a, b, first, second = args[:4]
    scaling = _scaling(a, b, first, second)
    if scale_result is not None or not scaling or not _torch_scales(a, b):
        return None
    out = kwargs.get("out")
    dtype = output or (a.dtype if out is None else out.dtype)
    if scaling == "scaled_rowwise" and dtype is not torch.bfloat16:
        return None
    return Parts(a, b, bias, output=dtype, scales=(first, second), scaling=scaling, promoted=not fast)


def _scaling(a: Tensor, b: Tensor, first: Tensor, second: Tensor) -> str:
    """Which of `space.kinds.gemm.SCALES` the scales of A [M,K] and B [K,N] are; empty for neither."""
    if any(scale.dtype is not torch.float32 or scale.device != a.device for scale in (first, second)):
        return ""
    if first.numel() == 1 and second.numel() == 1:
        return "scaled"
    rowwise = first.shape == (a.shape[0], 1) and second.shape == (1, b.shape[1])
    return "scaled_rowwise" if rowwise and first.is_contiguous() and second.is_contiguous() else ""


def _torch_scales(a: Tensor, b: Tensor) -> bool:
    """Whether torch's `_scaled_mm` takes A and B: what it refuses stays refused."""
    both_e5m2 = a.dtype is torch.float8_e5m2 and b.dtype is torch.float8_e5m2
    along_k = a.stride(1) == 1 and b.stride(0) == 1
    return along_k and not both_e5m2 and a.shape[1] % _STEP == 0 and b.shape[1] % _STEP == 0


def _parts(overload: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Parts | None:
    """A call's operands; None where our kernels compute something else."""
    if overload.startswith("_scaled_mm"):
        return _scaled_parts(args, kwargs)
    if not overload.startswith("addmm"):
        return Parts(args[0], args[1]) if len(args) == 2 and args[0].dtype in _MULTIPLIED else None
    if len(args) != 3 or args[1].dtype not in _MULTIPLIED:
        return None
    added, a, b = args
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    if not isinstance(alpha, int | float) or not isinstance(beta, int | float) or not alpha or not beta:
        # What is multiplied by 0 is not read: not even a NaN of it reaches C.
        return None
    if added.dim() == 1:
        return Parts(a, b, bias=added, alpha=float(alpha)) if beta == 1 else None
    return Parts(a, b, source=added, alpha=float(alpha), beta=float(beta)) if added.dim() == 2 else None


def _problem(parts: Parts, scales: str = "") -> Gemm | None:
    """The problem of a call; scales that have no word there are an alpha. None where no kernel takes its operands."""
    a, b = parts.a, parts.b
    if a.numel() == 0 or b.numel() == 0 or a.dtype not in OUTPUT_OF:
        return None
    if a.dtype is torch.float32 and not _tf32():
        return None
    alpha = _SCALED if parts.scaling and not scales else parts.alpha
    output = parts.output or OUTPUT_OF[a.dtype]
    if output not in OUTPUTS:
        return None
    try:
        return problem_of(a, b, parts.bias, parts.source, alpha, "none", output, parts.promoted, scales)
    except Refused:
        return None


def _output(parts: Parts) -> tuple[tuple[int, ...], torch.dtype]:
    return (*parts.a.shape[:-1], parts.b.shape[-1]), parts.output or OUTPUT_OF[parts.a.dtype]
