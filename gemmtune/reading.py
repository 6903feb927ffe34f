"""The client's calls for a service's views: columns, studies, the space, the fleet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from tuner.fleet.service_client import ServiceClient

#: Largest page that the service returns.
PAGE: Final = 1_000
Document = dict[str, Any]
#: What a caller may write.
_PROBLEM: Final = '{"m": 16, "n": 4096, "k": 4096}'
_KNOBS: Final = '{"tile_m": 128, "stages": 4}'


def given(**words: str | None) -> dict[str, str]:
    """The words that a caller gave; the service knows the defaults of others."""
    return {name: word for name, word in words.items() if word is not None}


def listed(name: str, items: object, shown: str) -> list[Any]:
    """An argument that is a list.

    Raises:
        ValueError: it is one text, one mapping, or nothing to go through.
    """
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise ValueError(f"{name} = {repr(items)[:80]} is no list: give one, as in [{shown}]")
    return list(items)


def mapped(name: str, fields: object, shown: str) -> dict[str, Any]:
    """An argument that names fields, each with its value.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(fields, Mapping):
        raise ValueError(f"{name} = {repr(fields)[:80]} names no fields: give them as in {shown}")
    return dict(fields)


def problems_of(problems: object) -> list[Document]:
    """Problems as their fields.

    Raises:
        ValueError: they are no list of them.
    """
    return [mapped(f"problems[{place}]", each, _PROBLEM)
            for place, each in enumerate(listed("problems", problems, _PROBLEM))]  # fmt: skip


def problem_of(problem: object) -> Document:
    """One problem as its fields.

    Raises:
        ValueError: it has none.
    """
    return mapped("problem", problem, _PROBLEM)


def knobs_of(knobs: object) -> Document:
    """Knobs with their values.

    Raises:
        ValueError: they are something else, such as a config's text.
    """
    return mapped("knobs", knobs, _KNOBS)


class Reading:
    """Calls that return the service's documents as they are; docs/api.md describes each."""

    _service: ServiceClient

    def best_columns(self, device: str, policy: str | None = None, *, after: int = 0) -> Document:
        """Every best of a device, column by column.

        Args:
            policy: the timing policy.
            after: `version` of an earlier answer; only rows that changed since are read.
        """
        return self._ask("/v1/bests:columns", device=device, policy=policy, after=after)

    def measurement_columns(
        self, *, problem: str | None = None, device: str | None = None, campaign: int | None = None,
        study: int | None = None, after: int = 0, limit: int | None = None,
    ) -> Document:  # fmt: skip
        """Measurements, column by column.

        Args:
            problem: key.
            after: `version` of an earlier answer; only rows that came since are read, unless `whole` says otherwise.
            limit: more measurements than this are sampled.
        """
        return self._ask("/v1/measurements:columns", problem=problem, device=device, campaign=campaign, study=study,
                         after=after, limit=limit)  # fmt: skip

    def measurement(self, measurement_id: int) -> Document:
        """One measurement in full."""
        return self._ask(f"/v1/measurements/{measurement_id}")

    def versus(self, measurement_id: int, baseline_id: int) -> Document:
        """How many times as fast as another measurement one is, with its 95 % interval."""
        return self._ask(f"/v1/measurements/{measurement_id}/versus/{baseline_id}")

    def studies(self, **filters: str) -> Iterator[Document]:
        """Studies, newest first; `filters` are `problem` (a key) and `device`."""
        return self._service.pages("/v1/studies", filters, PAGE)

    def study(self, study_id: int) -> Document:
        """One study with its last finals."""
        return self._ask(f"/v1/studies/{study_id}")

    def study_outlook(self, study_id: int) -> Document:
        """What trying more candidates is still expected to gain."""
        return self._ask(f"/v1/studies/{study_id}/outlook")

    def ladder(
        self, n: int, k: int, *, device: str | None = None, ms: str | None = None, **fields: int | str
    ) -> Document:
        """One weight at every M; `ms` are values of M, as in `1,16,4096`.

        Raises:
            ValueError: `ms` is a list.
        """
        if isinstance(ms, Iterable) and not isinstance(ms, str):
            raise ValueError(f"ms = {repr(ms)[:80]} is no text: give values of M as in '1,16,4096'")
        return self._ask("/v1/ladder", n=n, k=k, device=device, ms=ms, **fields)

    def weights(self, device: str) -> list[Document]:
        """Weights that were measured, those with most values of M first."""
        return self._service.items("GET", "/v1/weights", params={"device": device})

    def rules(self, family: str | None = None) -> list[Document]:
        """Every rule of every family, or of one."""
        return self._service.items("GET", "/v1/rules", params={"family": family} if family is not None else None)

    def rule(self, rule: str, family: str | None = None) -> Document:
        """One rule; `family` says whose, where several have it."""
        return self._ask(f"/v1/rules/{quote(rule, safe='')}", family=family)

    def space(
        self, m: int, n: int, k: int, *, device: str | None = None, family: str | None = None, legal: bool = False,
        x: str | None = None, y: str | None = None, **fields: int | str,
    ) -> Document:  # fmt: skip
        """How many configs a problem has, and the cells over two knobs.

        Args:
            legal: also count what is legal and not worth trying, which takes seconds.
            x, y: two knobs.
            fields: further fields of the problem, as in `dtype="fp16"`.
        """
        return self._ask("/v1/space", m=m, n=n, k=k, device=device, family=family, legal=_flag(legal), x=x, y=y,
                         **fields)  # fmt: skip

    def funnel(
        self, m: int, n: int, k: int, *, device: str | None = None, legal: bool = False, **fields: int | str
    ) -> Document:
        """The steps from all configs of a problem to the served one."""
        return self._ask("/v1/funnel", m=m, n=n, k=k, device=device, legal=_flag(legal), **fields)

    def explain_neighbours(
        self, m: int, n: int, k: int, knobs: Mapping[str, int | str], *, device: str | None = None,
        family: str | None = None, arch: str | None = None, **fields: int | str,
    ) -> Document:  # fmt: skip
        """`explain`, with the state of every value of every knob; raises what that does."""
        body = {"problem": {"m": m, "n": n, "k": k, **fields}, "knobs": knobs_of(knobs)}
        words = given(device=device, family=family, arch=arch)
        return self._service.document("POST", "/v1/explain:neighbours", body | words)

    def rounds(self, **filters: str | int) -> Iterator[Document]:
        """Rounds, newest first; `filters` are `worker`, `campaign`, `status` and `since`."""
        return self._service.pages("/v1/rounds", filters, PAGE)

    def fleet(self) -> Document:
        """Every worker with its round and its last clocks."""
        return self._ask("/v1/fleet")

    def failures(self, **filters: str | int) -> Document:
        """Failures in groups; `filters` are `device`, `campaign`, `problem` (a key), `family` and `outcome`."""
        return self._ask("/v1/failures", **filters)

    def campaign_problem_columns(self, campaign_id: int) -> Document:
        """A campaign's problems, column by column."""
        return self._ask(f"/v1/campaigns/{campaign_id}/problems:columns")

    def drift(self, device: str) -> Document:
        """How driver, compiler, kernels and library moved a device's bests."""
        return self._ask(f"/v1/devices/{quote(device, safe='')}/drift")

    def layouts(self) -> Document:
        """The kinds of layouts, and the words that their parameters take."""
        return self._ask("/v1/layouts")

    def layout(self, name: str, **parameters: str | int) -> Document:
        """One layout, as in `layout("swizzle", mode="64B")`; /openapi.json lists the parameters."""
        return self._ask(f"/v1/layouts/{quote(name, safe='')}", **parameters)

    def layout_drawing(self, name: str, **parameters: str | int) -> str:
        """One layout as SVG; parameters as `layout` takes them."""
        drawn = self._service.fetch(f"/v1/layouts/{quote(name, safe='')}", parameters | {"format": "svg"})
        try:
            return drawn.decode()
        except UnicodeDecodeError as error:
            raise self._service.foreign() from error

    def events(self, last_event_id: str | None = None, **filters: str | int | float) -> Iterator[Document]:
        """Changes as they happen: each event has `id`, `event` and `data`; `hello` is the first, and one after a loss.

        Args:
            last_event_id: of the last event of a stream that broke off; `hello` says whether this one resumes it.
            filters: `seconds`, `campaign` and `device`.
        """
        return self._events("/v1/events", last_event_id, filters)

    def _events(
        self, path: str, last_event_id: str | None, filters: Mapping[str, str | int | float]
    ) -> Iterator[Document]:
        headers = {"Last-Event-ID": last_event_id} if last_event_id else None
        said: dict[str, str] = {}
        for line in self._service.lines(path, filters, headers):
            name, _, value = line.partition(":")
            if line:
                said[name] = value.strip()
            elif "data" in said:
                try:
                    data = json.loads(said["data"])
                except (ValueError, RecursionError) as error:
                    raise self._service.foreign() from error
                yield {"id": said.get("id"), "event": said.get("event"), "data": data}
                said = {}

    def caller(self) -> Document:
        """The name of the client's token, and what it may do."""
        return self._ask("/v1/caller")

    def service(self) -> Document:
        """The service's version, and what its store holds."""
        return self._ask("/v1/service")

    def _ask(self, path: str, **query: str | int | bool | None) -> Document:
        asked = {name: value for name, value in query.items() if value is not None}
        return self._service.document("GET", path, params=asked or None)


def _flag(value: bool) -> str:
    return "true" if value else "false"
