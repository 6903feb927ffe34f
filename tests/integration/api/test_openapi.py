"""Generated requests, allowed and forbidden, on both databases: none fails inside, every answer is as described.

`python -m benchmarks.fuzz_api` sends far more, to a service in its own process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from api.access import AccessPolicy
from api.app import create_app
from benchmarks.postgres import Postgres
from space.kinds.gemm import Gemm
from tests.integration.api.asking import serving
from tests.support import keep_best
from tuner.evidence import tokens
from tuner.evidence.store import Store

#: Of each mode. To make one takes ten times what sending it does: each goes to both databases and from several callers.
CASES = 3
CONFIG = Path(__file__).parents[2] / "schemathesis.toml"


@dataclass(frozen=True, slots=True)
class Service:
    """A service on one kind of database, with a token of each sort, and one caller without."""

    url: str
    secrets: dict[str, str | None]


@pytest.fixture(scope="module")
def services(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: Postgres
) -> Iterator[tuple[Service, Service]]:  # fmt: skip
    with ExitStack() as stack:
        file = f"sqlite:///{tmp_path_factory.mktemp('openapi')}/store.db"
        yield started(stack, file), started(stack, postgres_server.database())


def started(stack: ExitStack, url: str) -> Service:
    store = stack.enter_context(Store.open(url))
    keep_best(store)
    keep_best(store, Gemm.parse("512x512x512"))
    secrets = {scope: tokens.make(store, scope, [scope])[1] for scope in ("admin", "read", "work")}
    application = create_app(store, AccessPolicy(tokens=True))
    application.state.follower.poll()
    return Service(stack.enter_context(serving(application)), {**secrets, "none": None})


def ask(url: str, check: Callable[[schemathesis.Case], None]) -> int:
    """Makes allowed and forbidden requests of each operation; returns the number of operations."""
    # Not by schemathesis' own pytest decorator: it reaches into parts of pytest that newer ones don't have.
    described = schemathesis.openapi.from_url(f"{url}/openapi.json", config=SchemathesisConfig.from_path(CONFIG))
    operations = [found.ok() for found in described.get_all_operations()]
    for operation in operations:
        for mode in GenerationMode:
            cases = operation.as_strategy(generation_mode=mode)

            @given(case=cases)
            @settings(max_examples=CASES, suppress_health_check=list(HealthCheck), deadline=None)
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


def test_every_answer_is_as_described(services: tuple[Service, Service]) -> None:
    """An administrator sends each case to both databases; then one of the others to one of them, in turns."""
    others = cycle(product(("none", "read", "work"), services))

    def check(case: schemathesis.Case) -> None:
        for service in services:
            send(case, "admin", service)
        send(case, *next(others))

    assert ask(services[0].url, check) >= 10


def send(case: schemathesis.Case, caller: str, service: Service) -> None:
    """Sends the case and checks its answer; without a secret all but the probes are refused."""
    secret = service.secrets[caller]
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    response = case.call_and_validate(base_url=service.url, headers=headers)
    assert secret or case.path in {"/healthz", "/readyz"} or response.status_code >= 400
