"""An outage whose reason changes: each loop of a service tells the reason that holds now, and not every time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from unittest.mock import Mock

import pytest

from api.access import AccessPolicy
from api.auth import TokenCache
from api.snapshot_follower import SnapshotFollower
from api.views.hub import EventHub
from api.write_probe import WriteProbe
from tuner.errors import StoreError
from tuner.evidence.store import Store

LOCKED, FULL = StoreError("another process has locked it"), StoreError("the disk is full")


class Outage:
    """Fails, with one reason three times and then with another; `over` is set once that one has come twice."""

    def __init__(self) -> None:
        self.over, self._reasons = threading.Event(), chain([LOCKED] * 3, [FULL] * 2)

    def __call__(self, *_: object) -> None:
        reason = next(self._reasons, None)
        if reason is None:
            self.over.set()
        raise reason or FULL


def followed(store: Store, outage: Outage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.snapshot_follower._POLL_SECONDS", 0.001)
    follower = SnapshotFollower(store, TokenCache(AccessPolicy().tokens))
    monkeypatch.setattr(follower, "poll", outage)
    follower.start()
    assert outage.over.wait(60)
    follower.stop()


def probed(store: Store, outage: Outage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "check_writable", outage)
    probe = WriteProbe(store)
    for _ in range(6):
        probe.ask()


def listened(store: Store, outage: Outage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.views.hub._POLL_SECONDS", 0.001)

    async def whole() -> None:
        hub = EventHub(lambda: Mock(poll=outage), threading.Event())
        await hub.listen(None)
        await asyncio.to_thread(outage.over.wait, 60)
        await hub.close()

    asyncio.run(whole())


@pytest.mark.parametrize("loop", [followed, probed, listened])
def test_each_reason_of_an_outage_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    loop: Callable[[Store, Outage, pytest.MonkeyPatch], None],
) -> None:  # fmt: skip
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        loop(store, Outage(), monkeypatch)
    said = [record.getMessage() for record in caplog.records]
    assert [[str(reason) in line for reason in (LOCKED, FULL)] for line in said] == [[True, False], [False, True]], said
