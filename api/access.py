"""Access policy: who may call the service. It is decided once, when the service starts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, Literal

from api.addresses import Network
from tuner.errors import SettingsError

#: Host names by which a browser or a client on this machine reaches the service.
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

Mode = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What the service requires of its callers.

    Attributes:
        tokens: every request outside the open paths needs a token.
        hosts: accepted values of the Host header; None accepts any. Without tokens only loopback names are accepted, so
            that a web page can't reach the service by pointing its own name at this machine (DNS rebinding).
        requests_per_second: sustained rate per caller; 0 sets no limit.
        proxies: networks of proxies that tell their clients' addresses.
    """

    tokens: bool = False
    hosts: frozenset[str] | None = None
    requests_per_second: float = 0.0
    proxies: tuple[Network, ...] = ()


def decide(
    mode: Mode, host: str, embedded: bool, hosts: frozenset[str] = frozenset(), rate: float = 0.0,
    proxies: tuple[Network, ...] = (),
) -> AccessPolicy:  # fmt: skip
    """The policy of a service that listens on `host`.

    Args:
        mode: `auto` requires tokens unless the service is embedded (SQLite) and listens on loopback.
        embedded: the store is a file that only this machine uses.
        hosts: host names that the settings allow in addition to loopback; where tokens are required, an empty set
            allows any host.
        rate: requests per second and caller.

    Raises:
        SettingsError: tokens are turned off although other machines can reach the service or share its store.
    """
    alone = embedded and is_loopback(host)
    if mode == "off" and not alone:
        where = f"{host} is not loopback" if embedded else "the store is shared"
        raise SettingsError(
            f"tokens can't be off here ({where}): leave --auth out and make tokens with `gemmtune token create`"
        )
    if mode == "on" or not alone:
        return AccessPolicy(True, hosts | LOOPBACK_NAMES if hosts else None, rate, proxies)
    return AccessPolicy(False, hosts | LOOPBACK_NAMES, rate, proxies)


def is_loopback(host: str) -> bool:
    """True if a server that listens on `host` can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
