"""Whatever is not gemmtune's answer is the client's own error."""

from __future__ import annotations

import inspect
import math
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import numpy as np
import pytest

from gemmtune import Client
from gemmtune.client import GemmtuneError

ANSWER: dict[str, Any] = {
    "source": "measured", "config": {"family": "gemv", "knobs": {}}, "time_us": 5.0, "tflops": 1.0, "why": "because",
}  # fmt: skip
GIVEN: dict[str, Any] = {
    "m": 1, "n": 2, "k": 3, "knobs": {}, "problems": [{"m": 1, "n": 2, "k": 3}], "devices": ["NVIDIA H200"],
    "format": "csv", "problem": {"m": 1, "n": 2, "k": 3}, "change": 1, "content": "digest",
}  # fmt: skip
#: Methods for which these bodies may be right: files, streams, and what has no answer.
OF_TEXT = {"table_as", "layout_drawing", "remove_build", "metrics", "events", "watch_campaign"}
FOREIGN = {
    "empty": httpx2.Response(200), "null": httpx2.Response(200, text="null"), "list": httpx2.Response(200, json=[[1]]),
    "number": httpx2.Response(200, json=7), "page": httpx2.Response(200, text="<html>It works!</html>"),
    "bytes": httpx2.Response(200, content=b"\xff\xfe\xfd"), "deep": httpx2.Response(200, text="[" * 100_000),
    "moved": httpx2.Response(302, headers={"Location": "http://elsewhere"}),
}  # fmt: skip
STREAM = {"Content-Type": "text/event-stream"}
METHODS = [
    name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_") and name != "close"
]


def client(answer: Callable[[httpx2.Request], httpx2.Response]) -> Client:
    return Client("http://127.0.0.1:8643", transport=httpx2.MockTransport(answer))


def saying(response: httpx2.Response) -> Client:
    return client(lambda _: httpx2.Response(response.status_code, content=response.content, headers=response.headers))


def asked(method: Callable[..., Any]) -> None:
    """Calls a method with values for what it requires, and reads what it returns."""
    needed = [
        each for each in inspect.signature(method).parameters.values()
        if each.default is inspect.Parameter.empty and each.kind is not inspect.Parameter.VAR_KEYWORD
    ]  # fmt: skip
    said = method(**{each.name: GIVEN.get(each.name, 1 if each.annotation == "int" else "word") for each in needed})
    if isinstance(said, Iterator):
        list(said)


def refused(method: Callable[..., Any]) -> None:
    with pytest.raises(GemmtuneError, match="answers, but not as gemmtune does") as found:
        asked(method)
    assert (found.value.status, found.value.kind, found.value.temporary) == (0, "not-gemmtune", False)


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("name", [name for name in METHODS if name not in OF_TEXT])
def test_a_body_that_is_not_gemmtunes_is_one_error(name: str, foreign: str) -> None:
    with saying(FOREIGN[foreign]) as one:
        refused(getattr(one, name))


@pytest.mark.parametrize("name", METHODS)
def test_a_broken_encoding_is_one_error(name: str) -> None:
    def broken(_: httpx2.Request) -> httpx2.Response:
        body = httpx2.ByteStream(b"this is not gzip")
        return httpx2.Response(200, headers={"Content-Encoding": "gzip"}, stream=body)

    with client(broken) as one:
        refused(getattr(one, name))


def test_text_that_is_none_is_one_error() -> None:
    with saying(FOREIGN["bytes"]) as one:
        refused(one.metrics)
    with saying(httpx2.Response(200, text="id: 1\nevent: hello\ndata: {\n\n", headers=STREAM)) as one:
        refused(one.events)


@pytest.mark.parametrize("name", sorted(OF_TEXT - {"remove_build"}))
def test_a_page_to_log_in_is_neither_a_file_nor_a_stream_without_events(name: str) -> None:
    for response in (httpx2.Response(200, html="<html>Log in</html>"), httpx2.Response(200), httpx2.Response(204)):
        with saying(response) as one:
            refused(getattr(one, name))


def test_a_stream_is_utf_8_whatever_its_headers_say() -> None:
    headers = {"Content-Type": "text/event-stream; charset=utf-16"}
    with saying(httpx2.Response(200, content='data: {"n":"µ"}\n\n'.encode(), headers=headers)) as one:
        assert [event["data"] for event in one.events()] == [{"n": "µ"}]


def test_an_answer_that_lacks_a_member_or_has_another_type_there_is_one_error() -> None:
    wrong: list[Any] = [{name: value for name, value in ANSWER.items() if name != lacking} for lacking in ANSWER]
    for name, values in {
        "source": (7, None), "time_us": ("5", [5]), "tflops": ({},), "why": (None,),
        "config": ("word", [1], {"family": "gemv"}, {"family": 7, "knobs": {}}, {"family": "gemv", "knobs": [1]}),
    }.items():  # fmt: skip
        wrong += [ANSWER | {name: value} for value in values]
    for document in wrong:
        with saying(httpx2.Response(200, json=document)) as one:
            refused(one.best)
        with saying(httpx2.Response(200, json={"items": [document]})) as one:
            refused(one.best_many)
    for items in (None, {}, "word", [], [ANSWER, ANSWER]):
        with saying(httpx2.Response(200, json={"items": items})) as one:
            refused(one.best_many)
    for page in ({"items": []}, {"items": None, "next": None}, {"next": None}):
        with saying(httpx2.Response(200, json=page)) as one:
            refused(one.measurements)


def test_a_batch_of_which_nothing_is_answered_is_not_asked_forever() -> None:
    said = iter([httpx2.Response(200, json={"items": [None, None]})])
    client = Client("http://127.0.0.1:8643", transport=httpx2.MockTransport(lambda _: next(said)))
    with pytest.raises(GemmtuneError, match="none of 2 problems was answered: request fewer") as refusal:
        client.best_many([{"m": 1, "n": 2, "k": 3}] * 2)
    assert refusal.value.kind == "no-progress"


def test_a_table_is_unchanged_only_where_a_hash_was_given() -> None:
    with saying(httpx2.Response(304)) as one:
        assert one.table("NVIDIA H200", "digest") is None
        refused(one.table)
    with saying(httpx2.Response(200, json=[1])) as one, pytest.raises(GemmtuneError, match="not as gemmtune does"):
        one.table("NVIDIA H200", "digest")


@pytest.mark.parametrize(
    ("status", "temporary"), [(429, True), (408, True), (500, True), (503, True), (400, False), (404, False)]
)
def test_what_may_succeed_later_is_temporary(status: int, temporary: bool) -> None:
    with saying(httpx2.Response(status)) as one, pytest.raises(GemmtuneError) as found:
        one.fleet()
    assert (found.value.status, found.value.temporary) == (status, temporary)


@pytest.mark.parametrize(("headers", "seconds"), [({"Retry-After": "7"}, 7.0), ({}, 0.0)])
def test_the_wait_that_a_service_asks_for_is_told(headers: dict[str, str], seconds: float) -> None:
    refusal = {"type": "/problems/too-often", "detail": "wait"}
    with saying(httpx2.Response(429, json=refusal, headers=headers)) as one, pytest.raises(GemmtuneError) as found:
        one.fleet()
    assert (found.value.retry_after, pickle.loads(pickle.dumps(found.value)).retry_after) == (seconds, seconds)


def test_an_error_passes_from_process_to_process() -> None:
    sent = GemmtuneError(503, "/problems/busy", "try again")
    received = pickle.loads(pickle.dumps(sent))
    assert (received.status, received.kind, str(received)) == (503, "/problems/busy", "try again")


def test_silence_is_temporary() -> None:
    def silent(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("planted")

    with client(silent) as one, pytest.raises(GemmtuneError) as found:
        one.fleet()
    assert (found.value.status, found.value.kind, found.value.temporary) == (0, "unreachable", True)


@pytest.mark.parametrize("url", ["http://tune..example:8643", "http://.", f"http://{'a' * 64}:8643", "http://h:port"])
def test_a_url_that_names_no_host_is_one_sentence(url: str) -> None:
    with pytest.raises(GemmtuneError, match=r"is not a URL .* write http://host:port") as found:
        Client(url)
    assert (found.value.status, found.value.kind) == (0, "bad-url")


@pytest.mark.parametrize("url", ["http://h:74179", "http://h:0", "http://h:-1", "http://h:8643/explain?m=1"])
def test_a_url_of_another_port_or_of_a_page_is_one_sentence(url: str) -> None:
    with pytest.raises(GemmtuneError, match=r"has a query, or a port that is not from 1 to 65,535: write") as found:
        Client(url)
    assert (found.value.status, found.value.kind) == (0, "bad-url")


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"url": None}, "bad-url", "None is not a URL"), ({"url": 5}, "bad-url", "5 is not a URL"),
        ({"token": 5}, "bad-token", "the token is of type int"),
        ({"seconds": -1}, "bad-timeout", "seconds = -1 is no timeout"),
        ({"seconds": "x"}, "bad-timeout", "'x' is no timeout"), ({"seconds": math.nan}, "bad-timeout", "nan"),
        ({"seconds": 1e12}, "bad-timeout", "up to 86,400"),
    ],
)  # fmt: skip
def test_arguments_that_are_none_are_one_sentence(given: dict[str, Any], kind: str, said: str) -> None:
    with pytest.raises(GemmtuneError, match=said) as found:
        Client(**{"url": "http://127.0.0.1:8643"} | given)
    assert found.value.kind == kind


def test_a_closed_client_says_so() -> None:
    with client(lambda _: httpx2.Response(200)) as one:
        pass
    with pytest.raises(GemmtuneError, match="closed: make another one"):
        one.fleet()


def test_whole_numbers_of_numpy_are_numbers_in_a_query_and_in_a_body() -> None:
    told: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        told.append(request.content or request.url.query)
        return httpx2.Response(200, json=ANSWER if request.method == "GET" else {"items": [ANSWER]})

    m, n, k = np.array([4096, 64, 128])
    client(answer).best(m, n, k)
    client(answer).best_many([{"m": m, "n": n, "k": k}])
    assert told == [b"m=4096&n=64&k=128", b'{"problems": [{"m": 4096, "n": 64, "k": 128}]}']


def test_a_batch_may_be_anything_that_can_be_gone_through_once() -> None:
    fields = {"m": 1, "n": 2, "k": 3}
    with saying(httpx2.Response(200, json={"items": [ANSWER] * 2})) as one:
        assert len(one.best_many(fields for _ in range(2))) == 2


@pytest.mark.parametrize(
    ("problems", "said"),
    [
        (None, "problems = None is no list"),
        ({"m": 1, "n": 2, "k": 3}, "problems = .* is no list: give one, as in"),
        ("m=1", "problems = 'm=1' is no list"),
        ([{"m": 1, "n": 2, "k": 3}, (1, 2, 3)], r"problems\[1\] = \(1, 2, 3\) names no fields: give them"),
        ([{"m": math.nan}], "is no JSON .*: give texts, finite numbers"),
        ([{"m": np.float32(4)}], "is no JSON .*: give texts, finite numbers"),
    ],
    ids=str,
)
def test_a_batch_that_is_none_is_the_clients_own_error(problems: Any, said: str) -> None:  # noqa: ANN401
    with saying(httpx2.Response(200, json={"items": []})) as one, pytest.raises(GemmtuneError, match=said) as found:
        one.best_many(problems)
    assert (found.value.status, found.value.temporary) == (0, False)


@pytest.mark.parametrize("order", ["create_campaign", "estimate_campaign"])
def test_one_text_is_no_list_of_devices_or_ladders(order: str) -> None:
    ask = getattr(saying(httpx2.Response(200, json={})), order)
    with pytest.raises(ValueError, match=r"devices = 'NVIDIA H200' is one text: give a list, as in \['NVIDIA H200'\]"):
        ask("rows", "NVIDIA H200", ladders=["m=1 n=2 k=3"])
    with pytest.raises(ValueError, match="ladders = 'm=1 n=2 k=3' is one text"):
        ask("rows", ["NVIDIA H200"], ladders="m=1 n=2 k=3")


#: Orders and questions that Python itself refused, with words about dictionaries.
NO_ARGUMENTS: list[tuple[str, dict[str, Any], str]] = [
    ("create_campaign", {"devices": None}, "devices = None is no list: give one, as in ['NVIDIA H200']"),
    ("create_campaign", {"devices": [3]}, "devices[0] = 3 names no fields: give them as in"),
    ("create_campaign", {"problems": {"m": 1, "n": 2, "k": 3}}, "problems = {'m': 1, 'n': 2, 'k': 3} is no list"),
    ("create_campaign", {"problems": ["1x2x3"]}, "problems[0] = '1x2x3' names no fields: give them as in {"),
    ("estimate_campaign", {"problems": [(1, 2, 3)]}, "problems[0] = (1, 2, 3) names no fields"),
    ("estimate_campaign", {"budget": 96}, """budget = 96 names no fields: give them as in {"candidates": 96}"""),
    ("explain", {"knobs": "stages=4"}, "knobs = 'stages=4' names no fields: give them as in {"),
    ("explain_neighbours", {"knobs": None}, "knobs = None names no fields"),
    ("roll_back_best", {"problem": "1x2x3"}, "problem = '1x2x3' names no fields"),
    ("ladder", {"ms": [1, 2]}, "ms = [1, 2] is no text: give values of M as in '1,16,4096'"),
]
RIGHT: dict[str, dict[str, Any]] = {
    "create_campaign": {"name": "rows", "devices": ["h200"]}, "estimate_campaign": {"name": "rows", "devices": []},
    "explain": {"m": 1, "n": 2, "k": 3}, "explain_neighbours": {"m": 1, "n": 2, "k": 3},
    "roll_back_best": {"device": "h200", "change": 1}, "ladder": {"n": 2, "k": 3},
}  # fmt: skip


@pytest.mark.parametrize(("order", "wrong", "said"), NO_ARGUMENTS, ids=lambda each: str(each)[:40])
def test_an_argument_of_another_type_is_named(order: str, wrong: dict[str, Any], said: str) -> None:
    with saying(httpx2.Response(200, json={})) as one, pytest.raises(ValueError, match=re.escape(said)):
        getattr(one, order)(**RIGHT[order] | wrong)


def test_what_is_no_text_is_carried_by_no_header() -> None:
    with saying(httpx2.Response(200, json={})) as one, pytest.raises(GemmtuneError, match="Idempotency-Key is 3"):
        one.create_campaign("rows", ["h200"], idempotency_key=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["\n", "é", "\t"])
def test_a_token_that_no_header_can_carry_is_one_sentence_without_it(wrong: str) -> None:
    with pytest.raises(GemmtuneError, match="the token has a character that no token has") as found:
        Client("http://127.0.0.1:8643", token=f"gemmtune_secret{wrong}")
    assert ("secret" in str(found.value), found.value.temporary) == (False, False)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_event_may_hold_what_some_take_for_the_end_of_a_line(end: str) -> None:
    said = ("id: 1", "event: best", 'data: {"device":"a\u2028b\u0085cd"}', "", ": quiet", "", 'data: {"n":2}', "", "")
    parts = end.join(said).encode()
    streamed = httpx2.ByteStream(parts)
    with client(lambda _: httpx2.Response(200, stream=streamed, headers=STREAM)) as one:
        events = list(one.events())
    assert events == [{"id": "1", "event": "best", "data": {"device": "a\u2028b\u0085cd"}},
                      {"id": None, "event": None, "data": {"n": 2}}]  # fmt: skip


@pytest.mark.parametrize("given", ["für H200", "two\nlines"])
def test_a_key_that_no_header_can_carry_is_named(given: str) -> None:
    with saying(httpx2.Response(200, json={})) as one:
        with pytest.raises(GemmtuneError, match=r"Idempotency-Key is .*use printable ASCII"):
            one.create_campaign("rows", ["NVIDIA H200"], idempotency_key=given)
        with pytest.raises(GemmtuneError, match=r"Last-Event-ID is .*use printable ASCII"):
            next(one.events(given))


@pytest.mark.parametrize(
    "name", ["rule", "layout", "build", "build_program", "remove_build", "device", "drift", "table"]
)
def test_a_name_in_a_path_stays_one_part_of_it(name: str) -> None:
    asked: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.raw_path)
        return httpx2.Response(200, json={})

    with client(answer) as one:
        getattr(one, name)("a/b?c#d")
    assert asked[0].split(b"/")[3] == b"a%2Fb%3Fc%23d"
