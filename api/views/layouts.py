"""GET /v1/layouts: swizzles, TMA boxes, bank conflicts, fragments, scale factors and descriptors, as JSON or SVG."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from api.auth import require
from api.encoding import NOT_MODIFIED, Rendered
from api.http_errors import responses
from api.patterns import ADDRESSES, PRINTABLE, WORD
from api.schemas import DIGITS, Absent, Strict
from api.views.kept import ViewsDependency
from space.layouts.banks import PATTERNS
from space.layouts.fragments.named import EXAMPLES
from space.layouts.swizzle import SWIZZLES, swizzle_named
from space.layouts.tcgen05_instruction import KINDS, Tcgen05Instruction, kind_named
from tuner.views import layouts
from tuner.views.layouts import DESCRIPTORS, Drawn

router = APIRouter(tags=["layouts"], dependencies=[Depends(require("read"))])
Text = Annotated[str, Field(max_length=100, pattern=PRINTABLE)]
Word = Annotated[str, Field(max_length=20, pattern=WORD)]
Major = Literal["k", "mn"]
_SVG: Final = "image/svg+xml"


class Format(Strict):
    """JSON or a drawing."""

    format: Literal["json", "svg"] = "json"


class TileQuery(Format):
    """A tile in shared memory."""

    rows: Annotated[int, Field(ge=1, le=512), DIGITS] = 64
    cols: Annotated[int, Field(ge=1, le=1_024, description="contiguous in global memory"), DIGITS] = 64
    dtype: Text = "bf16"
    mode: Annotated[str, Field(max_length=10, description=", ".join(SWIZZLES))] = "128B"
    box_cols: Annotated[int, Field(ge=1, le=1_024), DIGITS] | Absent = None


class SwizzleQuery(TileQuery):
    """A swizzled tile."""

    rows: Annotated[int, Field(ge=1, le=512), DIGITS] = 8


class BoxesQuery(TileQuery):
    """A tile, and how it is read."""

    rows: Annotated[int, Field(ge=1, le=512), DIGITS] = 128
    major: Major = "k"


class BanksQuery(TileQuery):
    """An access to a tile, or to addresses."""

    pattern: Annotated[str, Field(max_length=40, description=", ".join(PATTERNS))] = "ldmatrix.x4"
    row: Annotated[int, Field(ge=0, le=511), DIGITS] = 0
    column: Annotated[int, Field(ge=0, le=1_023), DIGITS] = 0
    addresses: Annotated[
        str, Field(max_length=400, pattern=ADDRESSES, description="a byte address per lane")
    ] = ""
    width: Annotated[int, Field(ge=1, le=16, description="bytes per lane, with addresses"), DIGITS] = 4


class FragmentQuery(Format):
    """An operand in registers."""

    instruction: Annotated[Text, Field(description=", ".join(EXAMPLES))] = "wgmma.m64n64k16"
    operand: Literal["A", "B", "C", "D"] = "D"
    dtype: Text = ""
    thread: Annotated[int, Field(ge=0, le=1_023), DIGITS] | Absent = None


class ScalesQuery(Format):
    """Scale factors in tensor memory."""

    vector: Literal["1X", "2X", "4X"] = "1X"
    rows: Annotated[int, Field(ge=1, le=256), DIGITS] = 128
    sf_id: Annotated[int, Field(ge=0, le=3), DIGITS] = 0


class DescriptorQuery(Format):
    """A shared-memory matrix descriptor: a word to decode, or its fields."""

    target: Literal["wgmma", "tcgen05"] = "wgmma"
    word: Word = ""
    start: Annotated[int, Field(ge=0, le=2**20), DIGITS] = 0
    leading: Annotated[int, Field(ge=0, le=2**20), DIGITS] = 16
    stride: Annotated[int, Field(ge=0, le=2**20), DIGITS] = 1_024
    mode: Annotated[str, Field(max_length=10)] = "128B"
    base_offset: Annotated[int, Field(ge=0, le=7), DIGITS] = 0


class InstructionQuery(Format):
    """An instruction descriptor of tcgen05.mma: a word to decode, or its fields."""

    kind: Annotated[str, Field(max_length=20, description=", ".join(KINDS))] = "f16"
    word: Word = ""
    m: Annotated[int, Field(ge=1, le=512), DIGITS] = 128
    n: Annotated[int, Field(ge=1, le=512), DIGITS] = 256
    dtype_a: Text = ""
    dtype_b: Text = ""
    dtype_d: Text = ""
    major_a: Major = "k"
    major_b: Major = "k"
    scale_dtype: Text = ""
    sf_id_a: Annotated[int, Field(ge=0, le=3), DIGITS] = 0
    sf_id_b: Annotated[int, Field(ge=0, le=3), DIGITS] = 0


class LayoutsOut(BaseModel):
    """Kinds of layouts, and words that their parameters take."""

    kinds: list[str]
    swizzles: list[str]
    patterns: dict[str, str]
    fragments: list[str]
    instruction_kinds: list[str]


def _tile(query: TileQuery) -> Any:  # noqa: ANN401  (a plan of boxes)
    return layouts.tile_of(query.rows, query.cols, query.dtype, query.mode, query.box_cols)


def _banks(query: BanksQuery) -> Drawn:
    if query.addresses:
        return layouts.banks(*layouts.access_at([int(part) for part in query.addresses.split(",")], query.width))
    return layouts.banks(*layouts.access_of(_tile(query), query.pattern, query.row, query.column))


def _descriptor(query: DescriptorQuery) -> Drawn:
    kind = DESCRIPTORS[query.target]
    made = kind.decode(int(query.word, 0)) if query.word else kind(
        query.start, query.leading, query.stride, swizzle_named(query.mode), query.base_offset
    )  # fmt: skip
    return layouts.descriptor(query.target, made)


def _instruction(query: InstructionQuery) -> Drawn:
    facts = kind_named(query.kind)
    if query.word:
        return layouts.instruction(query.kind, Tcgen05Instruction.decode(int(query.word, 0), query.kind))
    a = query.dtype_a or next(iter(facts.inputs))
    made = Tcgen05Instruction(
        query.kind, query.m, query.n, a, query.dtype_b or a, query.dtype_d or ("s32" if query.kind == "i8" else "f32"),
        query.major_a, query.major_b, scale_dtype=query.scale_dtype or next(iter(facts.scales), ""),
        sf_id_a=query.sf_id_a, sf_id_b=query.sf_id_b,
    )  # fmt: skip
    return layouts.instruction(query.kind, made)


#: Kind, its parameters, and what makes it; in words for the description.
_KINDS: Final[tuple[tuple[str, type[Format], Callable[[Any], Drawn], str], ...]] = (
    ("swizzle", SwizzleQuery, lambda query: layouts.swizzle(_tile(query)),
     "Offset and first bank of each 16-byte column of a swizzled tile."),
    ("boxes", BoxesQuery, lambda query: layouts.boxes(_tile(query), query.dtype, query.major),
     "The boxes with which TMA loads a tile, and the strides with which wgmma and tcgen05 read it."),
    ("banks", BanksQuery, _banks, "Bank conflicts of an access: its wavefronts, and those without conflicts."),
    ("fragment", FragmentQuery,
     lambda query: layouts.fragment(query.instruction, query.operand, query.dtype, query.thread)[1],
     "Which thread and register hold each element of an operand."),
    ("scales", ScalesQuery, lambda query: layouts.scales(query.vector, query.rows, query.sf_id)[1],
     "Where block-scaled tcgen05.mma reads its scale factors in tensor memory."),
    ("descriptor", DescriptorQuery, _descriptor, "Bits and fields of a shared-memory matrix descriptor."),
    ("instruction", InstructionQuery, _instruction, "Bits and fields of an instruction descriptor of tcgen05.mma."),
)  # fmt: skip


@router.get("/v1/layouts", operation_id="listLayouts", responses=responses())
async def list_layouts() -> LayoutsOut:
    """The kinds of layouts, and the words that their parameters take."""
    return LayoutsOut(kinds=[name for name, *_ in _KINDS], swizzles=list(SWIZZLES), patterns=dict(PATTERNS),
                      fragments=list(EXAMPLES), instruction_kinds=list(KINDS))  # fmt: skip


def _endpoint(kind: str, query_type: type[Format], make: Callable[[Any], Drawn]) -> Callable[..., Any]:
    async def answer(request: Request, query: Format, views: ViewsDependency) -> Response:
        def render() -> Rendered:
            drawn = make(query)
            return Rendered(drawn.svg().encode(), _SVG) if query.format == "svg" else Rendered.of(drawn.document)

        asked = (kind, *sorted(fields_set(query)))
        return await views.keep(request, asked, render)

    answer.__annotations__["query"] = Annotated[query_type, Query()]
    answer.__annotations__ |= {"request": Request, "views": ViewsDependency, "return": Response}
    return answer


def fields_set(query: Format) -> list[tuple[str, object]]:
    """A question's fields, defaults included, without absent ones."""
    return [(name, value) for name, value in query if value is not None]


for _name, _query, _make, _words in _KINDS:
    router.add_api_route(
        f"/v1/layouts/{_name}", _endpoint(_name, _query, _make), methods=["GET"], name=_name,
        operation_id=f"get{_name.capitalize()}Layout", description=_words, response_model=None,
        responses={
            **responses(), **NOT_MODIFIED,
            200: {"description": "the layout", "content": {
                "application/json": {"schema": {"type": "object"}}, _SVG: {"schema": {"type": "string"}}}},
        },
    )  # fmt: skip
