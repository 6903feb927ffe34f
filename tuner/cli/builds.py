"""`gemmtune builds …`: the compiled kernels that workers share."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.commands import group
from tuner.cli.options import Db, Json, existing_store
from tuner.cli.output import console, emit, say
from tuner.errors import BuildRefused
from tuner.exits import EXIT_BROKEN
from tuner.fleet.builds import remove as remove_build
from tuner.fleet.builds import verify as verify_builds

app = group("Builds that workers share.")


@app.callback()
def builds() -> None:
    """Builds that workers share."""


@app.command()
def verify(
    most: Annotated[int, typer.Option(min=1, help="Number of builds to compile again, chosen at random.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the random choice.")] = 0,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Compiles shared builds again and compares every byte; needs no GPU.

    Exits with code 1 if a build differs from what its source compiles to.
    """
    with existing_store(db) as store:
        found = list(verify_builds(store, most, seed))
    wrong = [(build, why) for build, why in found if why]
    if as_json:
        said = [{"digest": build.digest, "offered_by": build.offered_by, "wrong": why} for build, why in wrong]
        emit({"compiled": len(found), "wrong": said})
    else:
        for build, why in wrong:
            console.print(f"{build.digest}, offered by {build.offered_by}: {why}")
        console.print(f"{len(found)} compiled again, {len(wrong)} wrong")
    if wrong:
        raise typer.Exit(EXIT_BROKEN)


@app.command()
def remove(
    digest: Annotated[str, typer.Argument(help="The build's digest, as `verify` prints it.")],
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Deletes a shared build, such as a damaged or forged one.

    Workers that have fetched it go on using it: delete `builds` in the GEMMTUNE_CACHE_DIR of each.
    """
    with existing_store(db) as store:
        if not remove_build(store, digest):
            raise BuildRefused(f"no build {digest[:64]} is stored: `gemmtune builds verify` prints whole digests")
    kept = "workers that fetched it go on using it until `builds` in their GEMMTUNE_CACHE_DIR is deleted"
    say(f"{digest} is removed; {kept}", {"removed": digest}, as_json)
