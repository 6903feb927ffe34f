"""Addresses of clients, also behind proxies that the settings trust."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from starlette.types import Scope

from tuner.errors import SettingsError

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

#: A client commonly has a whole IPv6 network of this many bits; its addresses count as one.
_CLIENT_BITS: Final = 64


class ClientAddresses:
    """Tells clients apart.

    Args:
        proxies: X-Forwarded-For counts only in requests from these networks, because any other client can send it.
    """

    def __init__(self, proxies: Sequence[Network] = ()) -> None:
        self._proxies = proxies
        # Most requests come from the same few proxies and clients.
        self._trusted, self._shown = lru_cache(10_000)(self._is_trusted), lru_cache(10_000)(_shown)

    def of(self, scope: Scope) -> str:
        """The address of a request's client; the network of an IPv6 client."""
        client = scope.get("client")
        if not client:
            return "unknown"
        address: str = client[0]
        if self._proxies and self._trusted(address):
            address = self._forwarded(scope, address)
        return self._shown(address)

    def _forwarded(self, scope: Scope, address: str) -> str:
        # Each proxy appends the address that connected to it: the last one that is not a trusted proxy is the client's.
        hops = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for").decode("latin-1")
        for hop in (part.strip() for part in reversed(hops.split(","))):
            if _address(hop) is None:
                return address
            address = hop
            if not self._trusted(hop):
                return hop
        return address

    def _is_trusted(self, address: str) -> bool:
        found = _address(address)
        return found is not None and any(found in network for network in self._proxies)


def networks(text: str) -> tuple[Network, ...]:
    """Addresses and networks, separated by commas.

    Raises:
        SettingsError: a part is neither an address nor a network.
    """
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise SettingsError(f"GEMMTUNE_TRUSTED_PROXIES = {text!r}: {error}; "
                            "give addresses or networks, as in 10.0.0.7 or 172.16.0.0/12") from error  # fmt: skip


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address; the IPv4 address of one that an IPv6 socket shows as IPv6. None if it is none."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found


def _shown(address: str) -> str:
    found = _address(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found.packed, _CLIENT_BITS), strict=False))
    return str(found or address)
