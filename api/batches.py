"""Batches of questions: one answer per problem, and all answers as JSON in parts.

A problem whose key is that of a measured one is valid, so only the others are validated field by field, which takes
several times as long as reading their answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final, Literal, TypeAlias

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from api.answer_service import AnswerService, RenderedAnswer
from api.device_bests import CachedBest
from api.http_errors import FieldError, HttpError
from api.json_bodies import large_json
from api.problem_schemas import ProblemIn
from api.schemas import BestOut, DeviceName, PolicyName, Strict, too_many
from space.errors import ProblemError
from space.kind import DEFAULT_KIND, KINDS
from space.problem import Problem, ProblemKind
from tuner.answering.answers import policy_of
from tuner.evidence.records import Policy

MOST_PROBLEMS: Final = 10_000
#: One batch may compute answers that were not measured for this long.
_COMPUTING_SECONDS: Final = 1.0
#: Problems that are validated at a time, and problems that are looked up.
_VALIDATED_AT_ONCE: Final = 256
_LOADED_AT_ONCE: Final = 1_000
#: Answers in a chunk of the response, about 256 KiB, and chunks that are made at a time.
_CHUNK_ANSWERS: Final = 56
CHUNKS_AT_ONCE: Final = 4

_PROBLEMS: Final = TypeAdapter(list[ProblemIn])
Answers: TypeAlias = list[CachedBest | RenderedAnswer | None]
_Find: TypeAlias = Callable[[Problem, str, Policy], CachedBest | RenderedAnswer | None]


class BatchIn(Strict):
    """Problems, a GPU model, and what the answers are to stand for."""

    problems: list[ProblemIn] = Field(min_length=1, max_length=MOST_PROBLEMS)
    device: DeviceName | None = None
    require: Literal["any", "measured"] = "any"
    policy: PolicyName | None = None
    neighbours: Literal["plain", "pdl"] = "plain"


class BatchOut(BaseModel):
    """One answer per problem, in the order of the problems."""

    items: list[BestOut | None]
    unanswered: list[int] = Field(
        description="indices of null items: not computed within a second, to be asked again; with require=measured "
        "also those that are not measured, which stay null until they are tuned"
    )


def answer_all(answer_service: AnswerService, body: bytes, rest: Callable[[], None] = lambda: None) -> Answers:
    """One answer per problem of a batch; None where there is none.

    Args:
        rest: called between the parts of the work.

    Raises:
        RequestValidationError, HttpError: 422, the body is not a valid batch; 400, it has a member twice.
    """
    batch, given = _parsed(body)
    device = answer_service.device(batch.device)
    if policy := policy_of(batch.policy, batch.neighbours):
        find: _Find = answer_service.answer
        if batch.require == "measured":
            find = partial(answer_service.measured_answer, only=batch.policy is not None)
        return _under(policy, find, device, given, rest)
    answers = _known(answer_service, device, [_plain_key(one) for one in given], rest)
    others = [place for place, found in enumerate(answers) if found is None]
    asked = _validated(given, others, rest)
    # A valid problem may be spelled otherwise, or be of a kind whose keys are not made of fields.
    for place, found in zip(others, _known(answer_service, device, [one.key for one in asked], rest), strict=True):
        answers[place] = found
    missing = [(place, one) for place, one in zip(others, asked, strict=True) if answers[place] is None]
    problems = _problems(missing)
    if batch.require == "measured":
        answer_service.count_misses(problems, device)
        return [found if found and found.source == "measured" else None for found in answers]
    until = time.monotonic() + _COMPUTING_SECONDS
    for (place, _), problem in zip(missing, problems, strict=True):
        if time.monotonic() > until:
            break
        answers[place] = answer_service.answer(problem, device)
    return answers


def _under(policy: Policy, find: _Find, device: str, given: list[Any], rest: Callable[[], None]) -> Answers:
    """The answers under a named policy, from the store: as many as there is time for."""
    problems = _problems(list(enumerate(_validated(given, list(range(len(given))), rest))))
    answers: Answers = [None] * len(problems)
    until = time.monotonic() + _COMPUTING_SECONDS
    for place, problem in enumerate(problems):
        if time.monotonic() > until:
            break
        answers[place] = find(problem, device, policy)
        rest()
    return answers


def chunks(answers: Answers) -> Iterator[bytes]:
    """A batch's answers as JSON, in chunks: all of them at once would take 45 MB."""
    begin = b'{"items":['
    for first in range(0, len(answers), _CHUNK_ANSWERS):
        part = answers[first : first + _CHUNK_ANSWERS]
        yield begin + b",".join([found.answer if found else b"null" for found in part])
        begin = b","
    places = ",".join(str(place) for place, found in enumerate(answers) if found is None)
    yield b'],"unanswered":[' + places.encode() + b"]}"


def _known(answer_service: AnswerService, device: str, keys: list[str | None], rest: Callable[[], None]) -> Answers:
    """The measured answers, one per key."""
    snapshot, answers = answer_service.snapshot, Answers()
    for first in range(0, len(keys), _LOADED_AT_ONCE):
        part = keys[first : first + _LOADED_AT_ONCE]
        loaded = snapshot.load(device, [key for key in part if key is not None])
        known = {key: held for key, held in loaded.items() if held.legal}
        answers += [known.get(key) if key else None for key in part]
        rest()
    return answers


def _parsed(body: bytes) -> tuple[BatchIn, list[Any]]:
    """A batch of which only the first problems are validated, and all problems as they were sent.

    Raises:
        RequestValidationError: the batch or one of its first problems is wrong.
        HttpError: 400, an object has a member twice.
    """
    try:
        try:
            document = large_json(body)
            given = document["problems"]
        except (orjson.JSONDecodeError, TypeError, KeyError):
            given = None
        except ValueError as error:
            raise HttpError(400, "malformed-body", f"the body is not valid JSON: {error}") from error
        if not isinstance(given, list) or len(given) > MOST_PROBLEMS:
            batch = BatchIn.model_validate_json(body, strict=True)
            return batch, [one.model_dump(exclude_unset=True) for one in batch.problems]
        first = document | {"problems": given[:_VALIDATED_AT_ONCE]}
        return BatchIn.model_validate(first, strict=True), given
    except ValidationError as error:
        raise _refusal(error) from None


def _validated(given: list[Any], places: list[int], rest: Callable[[], None]) -> list[ProblemIn]:
    """The problems at these places, validated a few at a time: 10,000 at once would keep Python busy for 40 ms.

    Raises:
        RequestValidationError: the first wrong ones are named.
    """
    found: list[ProblemIn] = []
    for first in range(0, len(places), _VALIDATED_AT_ONCE):
        part = places[first : first + _VALIDATED_AT_ONCE]
        try:
            found += _PROBLEMS.validate_python([given[place] for place in part], strict=True)
        except ValidationError as error:
            raise _refusal(error, part) from None
        rest()
    return found


def _refusal(error: ValidationError, places: Sequence[int] = ()) -> RequestValidationError:
    """What is wrong with a batch, or with its problems at these places."""
    if many := too_many(error):
        return RequestValidationError([{"type": many.type, "loc": ("body",), "msg": many.message()}])
    shown = error.errors(include_url=False, include_context=False, include_input=False)
    for each in shown:
        first, *inner = each["loc"] or ("",)
        each["loc"] = ("body", "problems", places[int(first)], *inner) if places else ("body", *each["loc"])
    return RequestValidationError(shown)


def _plain_key(given: Any) -> str | None:  # noqa: ANN401  (a JSON value)
    """The key of a problem that is plainly spelled; None, or no problem's key, of any other value.

    Only the key of a valid problem equals that of a measured one, so nothing but the numbers' type is checked: text of
    the same digits makes the same key.
    """
    try:
        kind = KINDS[given.get("kind", DEFAULT_KIND)]
        if kind.quick_key is None:
            return None
        for name in _numbers(kind):
            if type(given.get(name, 0)) is not int:
                return None
        return kind.quick_key(**given)
    except (AttributeError, KeyError, TypeError):
        return None


@lru_cache
def _numbers(kind: ProblemKind) -> tuple[str, ...]:
    return tuple(field.name for field in kind.fields if field.type is int)


def _problems(missing: list[tuple[int, ProblemIn]]) -> list[Problem]:
    problems, errors = [], []
    for place, asked in missing:
        try:
            problems.append(asked.problem())
        except ProblemError as error:
            errors.append(FieldError(pointer=f"/problems/{place}", detail=str(error)))
    if errors:
        raise HttpError(422, "bad-input", f"{errors[0].pointer}: {errors[0].detail}", errors=errors[:100])
    return problems
