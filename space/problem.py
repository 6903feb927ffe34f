"""Problem and ProblemKind: a product, as seen by everything that does not multiply it.

A kind owns its fields and key, its operands, its operations and least bytes, and what makes two of its problems
similar. Command line, URLs, JSON, store columns, recordings and the client derive from it. `space.kind` lists
the kinds; `space/kinds/` has one module for each.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

from space.elements import element_bytes
from space.errors import ProblemError

#: A problem of the kind that a family takes: its rules read fields that only that kind has.
OwnProblem: TypeAlias = Any

#: Bytes of one element of each dtype that operands have. tf32 travels and is stored as 32-bit words.
DTYPE_BYTES: Final[dict[str, int]] = {
    dtype: element_bytes(dtype)
    for dtype in ("bf16", "fp16", "tf32", "f32", "s32", "fp8_e4m3", "fp8_e5m2", "int8", "uint8")
}
#: Digits behind the point of a distance, so that shapes that are equally far in theory are equally far here.
DISTANCE_DIGITS: Final = 9

#: TMA extents and our kernels' loop counters are 32-bit.
MAX_EXTENT: Final = 2**31 - 1

Role = Literal["input", "output", "source", "bias", "scale"]


@dataclass(frozen=True, slots=True)
class Operand:
    """One array that a product reads or writes.

    Attributes:
        name: `a`, `b`, `c`, `source`, `bias` …
        role: how a worker uses it: it fills an `input` with random data, and poisons and compares an `output`; `source`
            is an output's content before the product, `bias` a vector that an epilogue adds, `scale` a factor.
        dtype: a key of `DTYPE_BYTES`.
        rows, columns, batch: extents of the matrix, and how many there are, one behind the other.
        column_major: whether neighbours of a column are neighbours in memory.
    """

    name: str
    role: Role
    dtype: str
    rows: int
    columns: int
    batch: int = 1
    column_major: bool = False

    @property
    def elements(self) -> int:
        """Number of elements in all matrices."""
        return self.rows * self.columns * self.batch

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements."""
        return self.elements * DTYPE_BYTES[self.dtype]


class Problem(ABC):
    """One product of some kind; frozen, hashable, equal by its fields."""

    __slots__ = ()

    kind: ClassVar[str]

    @property
    @abstractmethod
    def key(self) -> str:
        """Canonical text `kind:…`; equal for equal problems, and never changed once published."""

    @property
    @abstractmethod
    def extents(self) -> tuple[int, int, int]:
        """M, N and K of the whole product."""

    @property
    @abstractmethod
    def shape(self) -> str:
        """The extents as text; it stands in `key` once."""

    @property
    @abstractmethod
    def dtype(self) -> str:
        """The word for the operands' dtypes; its first part is a key of `DeviceProfile.tensor_tflops`."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The problem as messages name it."""

    @property
    @abstractmethod
    def similar(self) -> tuple[str, ...]:
        """A text that two problems of a kind share if measurements of one are relevant to the other."""

    @property
    @abstractmethod
    def batch(self) -> int:
        """Independent products."""

    @property
    def size(self) -> str:
        """The shape, with ` ×8` for a batch: two problems of one shape differ by it."""
        return f"{self.shape} ×{self.batch}" if self.batch > 1 else self.shape

    @property
    @abstractmethod
    def flops(self) -> int:
        """Multiplications and additions of the whole product."""

    @property
    @abstractmethod
    def min_bytes(self) -> int:
        """Bytes of device memory that no kernel avoids: every input read once, every output written once."""

    @abstractmethod
    def fields(self) -> dict[str, int | str]:
        """The values of the kind's `fields`, as a command line, a URL and JSON spell them."""

    @abstractmethod
    def resized(self, m: int, n: int, k: int) -> Self:
        """The same product with other extents."""

    @abstractmethod
    def class_of_alignment(self) -> Self:
        """The problem that stands for all whose kernels have the same constants: one cubin serves them."""

    @abstractmethod
    def features(self) -> dict[str, float]:
        """Numbers that predict times, besides extents, bytes and operations."""

    @abstractmethod
    def operands(self) -> tuple[Operand, ...]:
        """Every array that the product reads or writes."""

    @property
    def output_elements(self) -> int:
        """Elements of everything that the product writes."""
        return sum(operand.elements for operand in self.operands() if operand.role == "output")

    def document(self) -> dict[str, Any]:
        """The problem as JSON: its kind, its own members, its dtype word and its key."""
        own = {name: getattr(self, name) for name in self.__dataclass_fields__}  # type: ignore[attr-defined]
        return {"kind": self.kind} | own | {"dtype": self.dtype, "key": self.key}

    def tflops(self, time_us: float) -> float:
        """TFLOP/s when one product takes `time_us` microseconds."""
        return self.flops / time_us / 1e6

    def key_around_shape(self) -> tuple[str, str]:
        """The key before and after the extents; similar problems share both."""
        head, _, tail = self.key.rpartition(self.shape)
        return head, tail

    def distance(self, other: Problem) -> float:
        """The sum of |log2| of the ratios of M, N and K: half as many rows are as far away as twice as many."""
        pairs = zip(self.extents, other.extents, strict=True)
        return round(sum(abs(math.log2(mine / theirs)) for mine, theirs in pairs), DISTANCE_DIGITS)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a problem: an option, a query parameter, a member of JSON, a CSV column.

    Attributes:
        name: the same word everywhere.
        type: int or str.
        default: the value of an absent field; None if it is required.
        meaning: one sentence.
        choices: texts to choose from, where the list is short. Others may be legal too: the kind decides.
        least, most: bounds of a number.
    """

    name: str
    type: type[int] | type[str]
    default: int | str | None
    meaning: str
    choices: tuple[str, ...] = ()

    least: int = 1
    most: int = MAX_EXTENT

    @property
    def help(self) -> str:
        """The meaning, and the choices unless it explains each of them."""
        explained = all(f"{choice}: " in self.meaning for choice in self.choices)
        return self.meaning if explained else f"{self.meaning} One of {', '.join(self.choices)}."


@dataclass(frozen=True, slots=True, eq=False)
class ProblemKind:
    """One sort of product; see the module docstring.

    Attributes:
        name: as in keys, URLs and SQL.
        product: what is computed, as a formula.
        problem: the class of its problems.
        fields: those of `shape` first.
        shape: names of the extents, in the order in which text joins them by `x`.
        from_fields: the problem from fields by name; raises ProblemError.
        from_key: the problem from its key; raises ProblemError.
        baselines: families of third-party kernels that users have for it.
        runtime: module of its runtime in a GPU process, `workers.cuda.kinds.<name>` unless it says otherwise.
        quick_key: the key from fields that are valid, `kind` among them or not, without making the problem; numbers
            may be text.
    """

    name: str
    product: str
    problem: type[Problem]
    fields: tuple[Field, ...]
    shape: tuple[str, ...]
    from_fields: Callable[..., Problem]
    from_key: Callable[[str], Problem]
    baselines: tuple[str, ...]
    runtime: str = ""
    quick_key: Callable[..., str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "runtime", self.runtime or f"workers.cuda.kinds.{self.name}")

    def key_of(self, given: Mapping[str, Any]) -> str | None:
        """The key of the problem that these fields describe if they are valid; None, or no problem's key, if not."""
        try:
            return self.quick_key(**given) if self.quick_key else self.of(given).key
        except (TypeError, ProblemError):
            return None

    def of(self, given: Mapping[str, Any], beside: Sequence[str] = ()) -> Problem:
        """The problem that fields by name describe; those left out take their defaults.

        Args:
            beside: what the caller reads beside the fields, for messages.

        Raises:
            ProblemError: a field is missing, unknown, or outside its domain.
        """
        names = [field.name for field in self.fields]
        if unknown := [name for name in given if name not in names]:
            near = get_close_matches(unknown[0], [*names, *beside], n=1)
            further = f"; beside it a list has {', '.join(beside)}" if beside else ""
            hint = f"did you mean {near[0]}? " if near else ""
            raise ProblemError(
                f"{unknown[0][:80]!r} is not a field of a {self.name} problem: {hint}it has {', '.join(names)}"
                f"{further}"
            )
        if missing := [field.name for field in self.fields if field.default is None and field.name not in given]:
            raise ProblemError(f"a {self.name} problem needs {', '.join(missing)}: it has {', '.join(names)}")
        for field in self.fields:
            value = given.get(field.name, field.type())
            if not isinstance(value, field.type) or isinstance(value, bool):
                rule = "a whole number: write digits alone, as in 64" if field.type is int else "text: quote it"
                raise ProblemError(f"{field.name} = {repr(value)[:80]} is not {rule} ({field.help.rstrip('.')})")
        return self.from_fields(**given)

    def parse_shape(self, text: str) -> dict[str, int]:
        """`4096x4096x4096` as extents by name.

        Raises:
            ProblemError: the text is not as many whole numbers, joined by `x`, as the kind has extents.
        """
        parts = text.strip().lower().split("x")
        numbers = [part for part in parts if part.removeprefix("-").isascii() and part.removeprefix("-").isdigit()]
        if len(parts) != len(self.shape) or len(numbers) != len(parts) or max(map(len, parts)) > _MAX_DIGITS:
            pattern = "x".join(name.upper() for name in self.shape)
            example = "x".join("4096" for _ in self.shape)
            raise ProblemError(
                f"shape {text[:80]!r} is not {pattern}: write {_NUMBER_WORDS.get(len(self.shape), len(self.shape))} "
                f"whole numbers, as in {example}"
            )
        return {name: int(number) for name, number in zip(self.shape, numbers, strict=True)}


#: Longer numbers are not extents, and take long to parse.
_MAX_DIGITS: Final = 20
_NUMBER_WORDS: Final = {1: "one", 2: "two", 3: "three", 4: "four"}
