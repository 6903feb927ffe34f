"""Hugging Face's `config.json`: the products of one forward pass, captured on the meta device without weights."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from space.errors import ProblemError
from tuner.tables.importers.source import Asked, Source
from tuner.tables.problems import numbers
from tuner.tables.shapes import Shapes, Tally

READS: Final = "a Hugging Face config.json"
#: M where the caller says none: decoding and prefill.
DEFAULT_MS: Final = "1..8192:x2"
_MOST_CHARACTERS: Final = 4 << 20
#: A model with more layers or experts takes minutes to build.
_MOST_LAYERS: Final = 1024
#: How transformers 5 spells floats that JSON has no number for.
_FLOAT: Final = "__float__"
_FLOATS: Final = frozenset({"Infinity", "-Infinity", "NaN"})
_COUNTS: Final = re.compile(
    "(num_|n_)?(hidden_)?(layers?|experts|heads)|.*(layers|experts|blocks)|(.*_)?depths?", re.ASCII
)
#: How the names end of members that choose code for attention or experts, which transformers may get from a repository.
_IMPLEMENTATIONS: Final = ("_implementation", "_implementation_internal")


def recognizes(source: Source) -> bool:
    """Whether the file is an object that names the type or the architectures of a model."""
    named = r'"(model_type"\s*:\s*"|architectures"\s*:\s*\[)'
    return source.head.lstrip().startswith("{") and bool(re.search(named, source.head))


def read(source: Source, asked: Asked) -> Shapes:
    """The products that a serving engine runs for each M: those that read the same activations are merged.

    Raises:
        ProblemError: PyTorch or transformers is missing, or transformers can't build such a model.
    """
    where = str(source.path)
    try:
        config = json.loads(source.whole(_MOST_CHARACTERS), object_hook=_decoded)
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"{where} is not valid JSON: {error}") from error
    _check(config, where)
    try:
        from tuner.tables.importers.capture import captured
    except ImportError as error:
        raise ProblemError(
            f"{where} is a model's config, which PyTorch and transformers turn into shapes ({error}): pip install "
            f"torch transformers; their CPU builds suffice"
        ) from error
    tally = Tally()
    if config.pop("quantization_config", None):
        tally.note("the checkpoint is quantized: its products are listed in the dtype of its activations")
    ms = asked.ms or tuple(numbers("--m", DEFAULT_MS))
    captured(config, ms, asked.tp, asked.tf32, tally, where)
    return tally.shapes()


def _decoded(found: dict[str, Any]) -> Any:  # noqa: ANN401  (any JSON)
    """An object without the members that choose code, or the float that transformers spelled as one."""
    spelled = found.get(_FLOAT) if len(found) == 1 else None
    if isinstance(spelled, str) and spelled in _FLOATS:
        return float(spelled)
    return {name: value for name, value in found.items() if not name.endswith(_IMPLEMENTATIONS)}


def _check(config: Any, where: str) -> None:  # noqa: ANN401  (any JSON)
    """Refuses what no model has, before anything is built from it."""
    if not isinstance(config, dict):
        raise ProblemError(f"{where} is not a model's config: it is not an object")
    if not isinstance(kind := config.get("model_type"), str):
        raise ProblemError(
            f"{where} is a model's config with model_type = {repr(kind)[:80]}: name the type that transformers has for "
            f"it, as in llama"
        )
    left: list[tuple[str, Any]] = list(config.items())
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            left += value.items()
        elif isinstance(value, list):
            left += ((name, each) for each in value)
        elif isinstance(value, int) and not isinstance(value, bool) and not -(2**31) <= value < 2**31:
            raise ProblemError(f"{where}: {name} = {value} is beyond 31 bits")
        elif isinstance(value, int) and _COUNTS.fullmatch(name) and value > _MOST_LAYERS:
            raise ProblemError(f"{where}: {name} = {value:,} is more than {_MOST_LAYERS:,}")
