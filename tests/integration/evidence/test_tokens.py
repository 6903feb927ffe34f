"""Tokens: created once, shown once, revoked for good; and the counter that notifies services."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support import keep_best
from tuner.errors import TokenError
from tuner.evidence import tokens
from tuner.evidence.store import Store
from tuner.evidence.tokens import Scope


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


def test_the_store_keeps_the_digest_and_never_the_secret(store: Store, tmp_path: Path) -> None:
    token, secret = tokens.make(store, "node-7", ["work"])
    assert token.digest == tokens.digest_of(secret)
    assert len(secret) > 40
    store.close()
    assert all(secret.encode() not in path.read_bytes() for path in tmp_path.iterdir())


def test_scopes_are_exact(store: Store) -> None:
    reader, _ = tokens.make(store, "reader", ["read"])
    assert reader.scopes == {Scope.READ}


def test_a_revoked_token_stays_revoked_and_keeps_its_name(store: Store) -> None:
    tokens.make(store, "ci", ["submit"])
    first = tokens.revoke(store, "ci").revoked_at
    assert tokens.revoke(store, "ci").revoked_at == first
    assert "revoked" in (tokens.tokens(store)[0].refusal(datetime.now(UTC)) or "")
    with pytest.raises(TokenError, match="already"):
        tokens.make(store, "ci", ["submit"])


def test_a_token_expires(store: Store) -> None:
    token, _ = tokens.make(store, "guest", ["read"], timedelta(hours=1))
    assert token.refusal(datetime.now(UTC)) is None
    assert "expired" in (token.refusal(datetime.now(UTC) + timedelta(hours=2)) or "")


@pytest.mark.parametrize(
    ("name", "scopes", "lifetime", "named"),
    [
        ("", ["read"], None, "name"),
        ("a b", ["read"], None, "name"),
        ("x" * 101, ["read"], None, "name"),
        ("ok", [], None, "no scope"),
        ("ok", ["root"], None, "root"),
        ("ok", ["read"], timedelta(0), "already ended"),
    ],
)
def test_malformed_tokens_are_refused(
    store: Store, name: str, scopes: list[str], lifetime: timedelta | None, named: str
) -> None:
    with pytest.raises(TokenError, match=named):
        tokens.make(store, name, scopes, lifetime)
    assert tokens.tokens(store) == []
    assert store.changed()["token"] == 0


def test_every_change_raises_its_counter(store: Store) -> None:
    assert store.changed() == {"best": 0, "measurement": 0, "token": 0}
    keep_best(store)
    keep_best(store, us=8.0)
    tokens.make(store, "ci", ["read"])
    tokens.revoke(store, "ci")
    assert store.changed() == {"best": 2, "measurement": 2, "token": 2}
