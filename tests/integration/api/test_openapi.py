"""Generated requests, allowed and forbidden: no response is an internal error, and none is undocumented.

`python -m benchmarks.fuzz_api` sends far more, to a service in its own process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from api.access import AccessPolicy
from api.app import create_app
from space.kinds.gemm import Gemm
from tests.integration.api.asking import serving
from tests.support import keep_best
from tuner.evidence import tokens
from tuner.evidence.store import Store

CASES = 10
#: Whoever has no token is refused before the request is read.
CASES_WITHOUT_TOKEN = 3
CONFIG = Path(__file__).parents[2] / "schemathesis.toml"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('openapi')}/store.db") as opened:
        keep_best(opened)
        keep_best(opened, Gemm.parse("512x512x512"))
        yield opened


@pytest.fixture(scope="module")
def secret(store: Store) -> str:
    return tokens.make(store, "fuzz", ["admin"])[1]


@pytest.fixture(scope="module")
def url(store: Store) -> Iterator[str]:
    application = create_app(store, AccessPolicy(tokens=True))
    application.state.follower.poll()
    with serving(application) as address:
        yield address


def ask(url: str, check: Callable[[schemathesis.Case], None], cases_each: int = CASES) -> int:
    """Sends each operation allowed and forbidden requests; returns the number of operations."""
    # Not by schemathesis' own pytest decorator: it reaches into parts of pytest that newer ones don't have.
    described = schemathesis.openapi.from_url(f"{url}/openapi.json", config=SchemathesisConfig.from_path(CONFIG))
    operations = [found.ok() for found in described.get_all_operations()]
    for operation in operations:
        for mode in GenerationMode:
            cases = operation.as_strategy(generation_mode=mode)

            @given(case=cases)
            @settings(max_examples=cases_each, suppress_health_check=list(HealthCheck), deadline=None)
            def one_operation(case: schemathesis.Case) -> None:
                check(ending_soon(case))

            with contextlib.suppress(Unsatisfiable):  # A request without parameters can't be wrong.
                one_operation()
    return len(operations)


def ending_soon(case: schemathesis.Case) -> schemathesis.Case:
    """The same request, but an event stream that would stay open for longer ends at once."""
    if case.path.endswith("/events") and isinstance(case.query, dict):
        seconds = case.query.get("seconds", 3_600.0)
        if isinstance(seconds, float | int) and 0 < seconds <= 86_400:
            case.query["seconds"] = 0.1
    return case


def test_with_a_token_every_answer_is_as_described(url: str, secret: str) -> None:
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(headers={"Authorization": f"Bearer {secret}"})

    assert ask(url, check) >= 10


def test_without_a_token_every_answer_is_as_described(url: str) -> None:
    def check(case: schemathesis.Case) -> None:
        response = case.call_and_validate()
        assert case.path in {"/healthz", "/readyz"} or response.status_code >= 400

    ask(url, check, CASES_WITHOUT_TOKEN)
