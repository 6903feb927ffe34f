"""Access: who may ask at all, decided once when the service starts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, Literal

from tuner.errors import SettingsError

#: Names by which a browser or a client on this machine reaches it.
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

Mode = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class Access:
    """What a service asks of its callers.

    Attributes:
        tokens: every request outside the open paths needs a token.
        hosts: names that a request's Host may carry; None takes any. Without tokens only loopback names are
            taken, so that a web page can't reach the service by pointing a name of its own at this machine.
        requests_per_second: of one caller, in the long run; 0 sets no limit.
    """

    tokens: bool = False
    hosts: frozenset[str] | None = None
    requests_per_second: float = 0.0


def decide(mode: Mode, host: str, embedded: bool, hosts: frozenset[str] = frozenset(), rate: float = 0.0) -> Access:
    """The access of a service that listens on `host`.

    Args:
        mode: `auto` asks for tokens unless the service is embedded (SQLite) and listens on loopback.
        embedded: the store is a file that this machine alone uses.
        hosts: names that the settings allow beside the loopback ones; none allows any where tokens are needed.
        rate: requests a second of one caller.

    Raises:
        SettingsError: tokens are to be off where others can reach the service or share its store.
    """
    alone = embedded and is_loopback(host)
    if mode == "off" and not alone:
        where = f"{host} is not loopback" if embedded else "the store is shared"
        raise SettingsError(
            f"tokens can't be off here ({where}): leave --auth out and make tokens with `gemmtune token create`"
        )
    if mode == "on" or not alone:
        return Access(True, hosts | LOOPBACK_NAMES if hosts else None, rate)
    return Access(False, hosts | LOOPBACK_NAMES, rate)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address that is listened on."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
