"""The answerer: the best config for a problem, from memory where it was measured, computed where it was not."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from api.answers import document
from api.follower import Follower
from api.problems import HttpProblem
from api.snapshot import Held, Snapshot
from space.arch import H200
from space.problem import DTYPES, Problem
from tuner.answering.answers import answer
from tuner.prediction.files import model_for
from tuner.tables.entries import canonical

#: Computed answers that are remembered; one is one to three KiB.
_REMEMBERED: Final = 4096
#: Fields of a query that name the problem, with what they are when left out.
_OPTIONAL: Final = {"dtype": "bf16", "layout": "nt", "batch": "1", "epilogue": "none"}
_REQUIRED: Final = ("m", "n", "k")
_REQUIRE: Final = ("any", "measured")


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, ready to be sent.

    Attributes:
        text: canonical JSON of `schemas.BestOut`.
    """

    text: bytes
    source: Literal["measured", "nearest", "predicted", "default", "none"]


class Answerer:
    """Answers from a follower's snapshot, and from models where nothing was measured.

    Args:
        models: folder of models that were trained here; those that ship are used where it has none.
    """

    def __init__(self, follower: Follower, models: Path | None = None) -> None:
        self._follower = follower
        self.models = models
        self._computed: OrderedDict[tuple[str, str], tuple[int, Told]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def snapshot(self) -> Snapshot:
        """What is known now.

        Raises:
            HttpProblem: 503, the service started a moment ago and has not read its store yet.
        """
        if not self._follower.loaded.is_set():
            raise HttpProblem(
                503, "starting", "the service still reads its store: try again in a second", {"Retry-After": "1"}
            )
        return self._follower.snapshot

    def measured(self, query: bytes) -> bytes | None:
        """The answer to the query string of `GET /v1/best`, if it is as plain as they come and was measured.

        None says nothing: whatever is spelled in an unusual way, wrong or not measured goes the long way.
        Nothing needs checking here: a query whose parts, put together, are the key of a measured problem is
        right in every part.
        """
        try:
            parts = query.decode("ascii").split("&")
            given = dict([part.split("=") for part in parts])
            if len(given) != len(parts):
                return None
            fields = _OPTIONAL | given
            four = DTYPES[fields.pop("dtype")]
            shape = "x".join([fields.pop(name) for name in _REQUIRED])
        except (ValueError, KeyError):
            return None
        layout, batch, epilogue = fields.pop("layout"), fields.pop("batch"), fields.pop("epilogue")
        device, required = fields.pop("device", None), fields.pop("require", "any")
        if fields or required not in _REQUIRE or not self._follower.loaded.is_set():
            return None
        snapshot = self._follower.snapshot
        known = snapshot.only_device if device is None else snapshot.spelled(device)
        if known is None:
            return None
        held = snapshot.held(f"gemm:{','.join(four)}:{layout}:{shape}:b{batch}:{epilogue}", known)
        return held.answer if held else None

    def tell(self, problem: Problem, device: str) -> Told:
        """The best known config for a problem on a device."""
        snapshot, key = self.snapshot, problem.key
        held = snapshot.held(key, device)
        if held is not None:
            return Told(held.answer, "measured")
        known = snapshot.devices.get(device)
        version = known.version if known else 0
        with self._lock:
            remembered = self._computed.get((device, key))
        if remembered and remembered[0] == version:
            return remembered[1]
        found = answer(snapshot, problem, device, model=model_for(device, self.models).model)
        told = Told(canonical(document(found)), found.source)
        with self._lock:
            self._computed[device, key] = (version, told)
            self._computed.move_to_end((device, key))
            if len(self._computed) > _REMEMBERED:
                self._computed.popitem(last=False)
        return told

    def held(self, key: str, device: str) -> Held | None:
        """The best of the problem with this key, if it was measured."""
        return self.snapshot.held(key, device)

    def device(self, name: str | None) -> str:
        """The device that is meant: the one named, the only one known, or the H200 where none is.

        Raises:
            HttpProblem: 422, there are several.
        """
        if name is not None:
            return name
        names = list(self.snapshot.devices)
        if len(names) > 1:
            raise HttpProblem(422, "device-needed", f"the store knows {', '.join(names)}: say which with device=…")
        return names[0] if names else H200.name
