"""Clients are told apart by address, also behind trusted proxies."""

from __future__ import annotations

import pytest

from api.addresses import ClientAddresses, networks
from tuner.errors import SettingsError


def address(peer: str, *forwarded: str, proxies: str = "10.0.0.0/8, fd00::7") -> str:
    headers = [(b"x-forwarded-for", hops.encode()) for hops in forwarded]
    scope = {"client": (peer, "1"), "headers": [(b"host", b"localhost"), *headers]}
    return ClientAddresses(networks(proxies)).of(scope)


def test_the_address_that_a_trusted_proxy_tells_counts() -> None:
    assert address("10.1.2.3", "192.0.2.1") == "192.0.2.1"
    assert address("fd00::7", "192.0.2.1") == "192.0.2.1"


def test_what_anybody_else_tells_is_ignored() -> None:
    assert address("192.0.2.9", "192.0.2.1") == "192.0.2.9"
    assert address("10.1.2.3", "192.0.2.1", proxies="") == "10.1.2.3"


def test_what_a_client_wrote_before_the_proxy_is_ignored() -> None:
    assert address("10.1.2.3", "127.0.0.1, 192.0.2.1") == "192.0.2.1"
    assert address("10.1.2.3", "127.0.0.1", "192.0.2.1") == "192.0.2.1"
    assert address("10.1.2.3", "127.0.0.1, 192.0.2.1, 10.9.9.9") == "192.0.2.1"


@pytest.mark.parametrize("hops", ["", "x", "192.0.2.1,", "192.0.2.1:80", "é"])
def test_a_proxy_that_tells_no_address_is_the_client(hops: str) -> None:
    assert address("10.1.2.3", hops) == "10.1.2.3"


def test_addresses_of_one_ipv6_network_are_one_client() -> None:
    assert address("2001:db8::1") == address("2001:db8::ffff:1") == "2001:db8::/64"
    assert address("2001:db8:0:1::1") != address("2001:db8::1")


def test_a_connection_without_an_address_has_one_name() -> None:
    assert ClientAddresses().of({"client": None, "headers": []}) == "unknown"


def test_settings_that_name_no_network_are_refused() -> None:
    assert networks(" ") == ()
    with pytest.raises(SettingsError, match="GEMMTUNE_TRUSTED_PROXIES"):
        networks("10.0.0.1/8")


def test_an_ipv4_address_of_an_ipv6_socket_is_itself() -> None:
    assert address("10.1.2.3", "::ffff:192.0.2.1") == address("::ffff:10.1.2.3", "192.0.2.1") == "192.0.2.1"
