"""Schemas of columnar answers."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field

Value = TypeVar("Value")


class Coded(BaseModel, Generic[Value]):
    """A column of few distinct values: a row's value is `values[at[row]]`."""

    values: list[Value]
    at: list[int]


class ConfigsOut(BaseModel):
    """The configs of a columnar answer, each once."""

    id: list[int]
    family: Coded[str]
    knobs: dict[str, Coded[Any]] = Field(description="by name; null where the family has no such knob")


class Columnar(BaseModel):
    """Rows as one array per column."""

    rows: int
    total: int = Field(description="rows that match the question; more than `rows` if they were sampled")
    sampled: bool
