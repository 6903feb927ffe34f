"""POST /v1/explain:neighbours: a config explained, with the state of every value of every knob."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends

from api.auth import require
from api.derived import FromAttributes, fields_of
from api.explain import ExplainIn, ExplanationOut
from api.http_errors import responses
from api.json_bodies import JsonRoute
from api.views.kept import ViewsDependency
from tuner.tables.entries import fields
from tuner.views.neighbours import (
    KnobStates,
    Neighbours,
    Part,
    Registers,
    SharedMemory,
    ValueState,
    neighbours,
)

router = APIRouter(tags=["explain"], dependencies=[Depends(require("read"))], route_class=JsonRoute)


@fields_of(ValueState, rules=list[str])
class ValueStateOut(FromAttributes):
    """A config with one knob at this value."""


@fields_of(KnobStates, values=list[ValueStateOut])
class KnobStatesOut(FromAttributes):
    """A knob with the state of each of its values."""


@fields_of(Part)
class PartOut(FromAttributes):
    """A part of a block's shared memory."""


@fields_of(SharedMemory, parts=list[PartOut])
class SharedMemoryOut(FromAttributes):
    """A block's shared memory against its limit."""


@fields_of(Registers)
class RegistersOut(FromAttributes):
    """Registers of a block and of a thread, against their limits."""


@fields_of(
    Neighbours, explanation=None, knobs=list[KnobStatesOut], smem=SharedMemoryOut | None,
    registers=RegistersOut | None,
)  # fmt: skip
class NeighboursOut(ExplanationOut):
    """A config explained, with the state of every value of every knob."""


@router.post(
    "/v1/explain:neighbours", operation_id="explainNeighbours", response_model=NeighboursOut, responses=responses()
)  # fmt: skip
async def explain_neighbours(body: ExplainIn, views: ViewsDependency) -> dict[str, Any]:
    """What every single change of a config does: legal, not worth trying, or illegal and by which rules."""
    asked = body.asked()
    found = await views.run(lambda: neighbours(*asked))
    said = found.explanation
    return fields(said) | {"legal": said.legal, "judged": said.judged} | fields(found)
