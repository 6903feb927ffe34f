"""`gemmtune serve`: the HTTP service on one store."""

from __future__ import annotations

from contextlib import ExitStack, closing
from tempfile import TemporaryDirectory
from typing import Annotated, cast, get_args

import typer

from api import access, addresses, server
from tuner.cli.options import Db, same_place, shared_store, timing_of
from tuner.cli.output import notes
from tuner.errors import SettingsError
from tuner.settings import settings
from tuner.tables.recorded import recorded_bests


def serve(
    db: Db = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. \\[default: GEMMTUNE_HOST]")] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Port to listen on. \\[default: GEMMTUNE_PORT]")
    ] = None,
    auth: Annotated[
        str | None,
        typer.Option(help="on: requests need tokens; off: they don't; auto: off on loopback with SQLite, else on. "
                     "\\[default: GEMMTUNE_AUTH]"),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Replay a recorded campaign as if live, in a store that is deleted at the end."),
    ] = False,
) -> None:  # fmt: skip
    """Serves the store over HTTP: best, explain, measurements, tables, campaigns and their workers."""
    config = settings()
    host, port, mode = host or config.host, port or config.port, auth or config.auth
    if mode not in get_args(access.Mode):
        raise SettingsError(f"--auth {mode!r} is unknown: use auto, on or off")
    if demo and db is not None:
        raise SettingsError("--demo has a store of its own: leave out --db")
    proxies = addresses.networks(config.trusted_proxies)
    with ExitStack() as stack:
        # A taken port is reported before a store is created and before anything is promised.
        listener = stack.enter_context(closing(server.listen(host, port)))
        if demo:
            db = f"{stack.enter_context(TemporaryDirectory(prefix='gemmtune-demo-'))}/demo.db"
        store = stack.enter_context(shared_store(db))
        policy = access.decide(
            cast(access.Mode, mode), host, store.embedded, config.hosts, config.requests_per_second, proxies
        )
        _say_address(policy, host, port, db)
        if not demo:
            recordings = recorded_bests(config.recorded_dir)
            server.serve(store, listener, policy, config.model_dir, timing_of(config), recordings)
            return
        from gemmtune.demo import RECORDINGS, TIMING, replaying

        notes.print("demonstration: a campaign recorded on an H200 is replayed as if live")
        folder = config.recorded_dir / RECORDINGS
        server.serve(store, listener, policy, config.model_dir, TIMING,
                     beside=lambda app: replaying(app, store, folder))  # fmt: skip


def _say_address(policy: access.AccessPolicy, host: str, port: int, db: str | None) -> None:
    """Prints where the service listens, and who may call it."""
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    if policy.tokens:
        create = f"gemmtune token create NAME --scope read{same_place(db)}"
        notes.print(f"serving on {address}; requests need a token: {create}")
        if not access.is_loopback(host):
            notes.print("plain HTTP exposes tokens to the network: put a TLS proxy in front")
    else:
        notes.print(f"serving on {address} for this machine only; tokens are off: every local user has full access")
        notes.print(f"try curl '{address}/v1/best?m=4096&n=4096&k=4096'")
    notes.print(f"the page: {address}/")
