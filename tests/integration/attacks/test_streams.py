"""Event streams: many readers of many tokens leave room for others, and a stream that ends makes room."""

from __future__ import annotations

import socket
import time
from collections import Counter
from contextlib import ExitStack

from api.streams import MOST_CALLER_STREAMS, MOST_STREAMS
from tests.integration.attacks.conftest import Others, Service
from tuner.evidence import tokens
from tuner.evidence.store import Store

PATH = "/v1/campaigns/1/events?seconds=60"
TOKENS, READERS_OF_EACH = 10, 50


def test_of_five_hundred_readers_sixty_four_are_served_and_no_token_has_more_than_its_share(service: Service) -> None:
    with Store.open(f"sqlite:///{service.log.parent}/store.db") as store:
        secrets = [tokens.make(store, f"reader-{number}", ["read"])[1] for number in range(TOKENS)]
    until = time.monotonic() + 30
    while service.ask(path="/v1/devices", secret=secrets[-1]).status_code == 401:
        assert time.monotonic() < until
        time.sleep(0.1)
    answered: dict[str, Counter[int]] = {secret: Counter() for secret in secrets}
    with ExitStack() as opened, Others(service, patience_seconds=20.0):
        readers = [(secret, opened.enter_context(reader(service, secret)))
                   for _ in range(READERS_OF_EACH) for secret in secrets]  # fmt: skip
        for secret, one in readers:
            answered[secret][int(one.recv(1_000).split(b" ")[1])] += 1
    together = sum(answered.values(), Counter[int]())
    assert together == {200: MOST_STREAMS, 429: TOKENS * READERS_OF_EACH - MOST_STREAMS}
    assert max(each[200] for each in answered.values()) <= MOST_CALLER_STREAMS
    # They have all left, and none counts any more.
    until = time.monotonic() + 30
    while service.ask(path="/v1/campaigns/1/events?seconds=0.1", secret=secrets[0]).status_code == 429:
        assert time.monotonic() < until
        time.sleep(0.1)


def reader(service: Service, secret: str) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", service.running.port), 30)
    one.sendall(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\r\n".encode())
    return one
