"""Unanswered: what failed where a service gave no response, and what to do about it."""

from __future__ import annotations

from typing import Final
from urllib.request import proxy_bypass

import httpx2

from tuner.settings import set_among

#: Failures of a connection that there was.
_BROKEN: Final = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)
#: Hosts of plain HTTP that never leaves this machine.
HERE: Final = ("127.0.0.1", "localhost", "::1")
#: How the system spells that it knows no address of a name.
_NO_ADDRESS: Final = "[Errno -"


def goes_away(url: httpx2.URL) -> bool:
    """Whether calls go through the proxies that the environment names: a proxy could not reach plain HTTP on this
    machine, and would read the token."""
    return url.scheme != "http" or url.host not in HERE


def unanswered(error: httpx2.HTTPError, url: httpx2.URL) -> tuple[str, str]:
    """What failed, and what to do about it."""
    broke = isinstance(error, _BROKEN) and "[SSL" not in str(error)
    return f"broke off ({error})" if broke else f"does not answer ({error})", _fix(error, url)


def _fix(error: httpx2.HTTPError, url: httpx2.URL) -> str:
    proxy = _proxy_of(url)
    if isinstance(error, httpx2.ProxyError):
        return f"the proxy{proxy and f' of {proxy}'} refuses it: correct or unset it, or list {url.host} in NO_PROXY"
    if "[SSL" in str(error):
        return "name the authority of its certificate in SSL_CERT_FILE, or write http:// if it speaks no TLS"
    if isinstance(error, _BROKEN):
        return "something is there: ask again, and if it stays so, check the URL, its port, and whether it is https"
    if isinstance(error, httpx2.ReadTimeout | httpx2.WriteTimeout):
        return "it is there and takes too long: ask again, for less at once, or wait longer (in Python seconds=60)"
    if proxy:
        return f"{proxy} names a proxy: check that it is there, or list {url.host} in NO_PROXY"
    if _NO_ADDRESS in str(error):
        return f"no address of {url.host} is known here: check the URL"
    return "start it with `gemmtune serve`"


def _proxy_of(url: httpx2.URL) -> str:
    """The variable whose proxy a call goes through, not its value, which may hold a password; empty without one."""
    if not goes_away(url) or proxy_bypass(url.netloc.decode("ascii")):
        return ""
    return next(iter(set_among((f"{url.scheme.upper()}_PROXY", "ALL_PROXY"))), "")
