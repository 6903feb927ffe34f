"""Tests the whole HTTP interface against its OpenAPI description with generated requests, allowed and forbidden.

    python -m benchmarks.fuzz_api --examples 100 --out benchmarks/results/fuzz_api.md

Runs on SQLite and on PostgreSQL, with tokens of three scopes and without one. Every response must match the
description, and none may be an internal error.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import httpx2

from benchmarks.command import WrongInput, as_command, positive
from benchmarks.postgres import running_postgres
from benchmarks.published import add_out, publish
from benchmarks.service_table import fill
from benchmarks.serving import serving
from tuner.evidence import tokens
from tuner.evidence.store import Store

#: Exit code of schemathesis where its options are wrong.
_USAGE: Final = 2
_CONFIG: Final = Path(__file__).parents[1] / "tests" / "schemathesis.toml"


#: Tokens by their name in the table, with their scopes; the last caller has none.
CALLERS: Final = {"read": ("read",), "work": ("work",), "admin": ("admin",), "none": ()}


def main() -> None:
    """Starts a service on each database, sends the requests and counts the answers."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--examples", type=positive, default=100, help="at most, of each operation and phase")
    options.add_argument("--bests", type=positive, default=300)
    options.add_argument("--phases", default="examples,coverage,fuzzing", help="of schemathesis, separated by commas")
    add_out(options)
    given = options.parse_args()
    lines = ["| database | token | operations | cases | passed | failures of the service |", "| --- |" + " --- |" * 5]
    defects = 0
    with tempfile.TemporaryDirectory() as name, running_postgres() as postgres:
        for database, url in (("SQLite", f"sqlite:///{name}/fuzz.db"), ("PostgreSQL", postgres.database())):
            folder = Path(name) / database
            folder.mkdir()
            with Store.open(url) as store:
                fill(store, given.bests)
                secrets = {who: tokens.make(store, who, scopes)[1] for who, scopes in CALLERS.items() if scopes}
            with serving(folder, url) as ours:
                for who in CALLERS:
                    header = f"Authorization: Bearer {secrets[who]}" if who in secrets else "X-Token: none"
                    asked = ask(f"http://127.0.0.1:{ours.port}", header, given.examples, given.phases, folder)
                    lines.append(f"| {database} | {who} {asked}")
                    print(lines[-1], flush=True)
            defects += (folder / "service.log").read_text().count('"unexpected failure"')
    text = "\n".join([*lines, "", f"Failures that the services logged: {defects}."])
    print(text)
    publish("fuzz_api", given.out, text)
    sys.exit(1 if defects else 0)


def ask(url: str, header: str, examples: int, phases: str, folder: Path) -> str:
    """Runs schemathesis once and returns the end of a table row; `folder` receives the files it leaves.

    Raises:
        WrongInput: schemathesis takes no such options.
        RuntimeError: a response did not match the description; the message is schemathesis' report.
    """
    # The first description takes longer than schemathesis waits on a busy machine.
    httpx2.get(f"{url}/openapi.json", timeout=120).raise_for_status()
    command = [str(Path(sys.executable).with_name("schemathesis")), "--no-color", "--config-file", str(_CONFIG), "run",
               f"{url}/openapi.json", "--max-examples", str(examples), "--phases", phases, "--header",
               header, "--request-timeout", "120"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode == _USAGE:
        raise WrongInput(done.stderr.strip().rpartition("\n")[2])
    counted = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    operations = re.search(r"Tested: (\d+)", done.stdout)
    if done.returncode or counted is None or operations is None:
        raise RuntimeError(done.stdout[-20_000:] + done.stderr)
    return f"| {operations[1]} | {counted[1]} | {counted[2]} | {done.stdout.count('Server error')} |"


if __name__ == "__main__":
    as_command(main)
