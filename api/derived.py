"""Schemas that take their fields from elsewhere: from a problem kind, or from a record of the tuner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

Model = TypeVar("Model", bound=BaseModel)


class FromAttributes(BaseModel):
    """A record of the tuner as JSON."""

    model_config = ConfigDict(from_attributes=True)


def with_fields(fields: dict[str, Any]) -> Callable[[type[Model]], type[Model]]:
    """Adds fields to a schema, each with its type and its default; `...` marks a required field."""

    def derive(schema: type[Model]) -> type[Model]:
        return create_model(schema.__name__, __base__=schema, __module__=schema.__module__, __doc__=schema.__doc__,
                            **fields)  # fmt: skip

    return derive


def fields_of(record: type, **changes: Any) -> Callable[[type[Model]], type[Model]]:  # noqa: ANN401  (types)
    """Gives a schema the fields of one of the tuner's records, in their order.

    Args:
        changes: types of fields that differ from the record's; None leaves a field out, a new name adds one.
    """
    hints = get_type_hints(record, include_extras=True) | changes
    return with_fields({name: (hint, ...) for name, hint in hints.items() if hint is not None})
