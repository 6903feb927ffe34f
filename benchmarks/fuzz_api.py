"""Tests the whole HTTP interface against its OpenAPI description with generated requests, allowed and forbidden.

    python -m benchmarks.fuzz_api --examples 100 --out benchmarks/results/fuzz_api.md

Runs twice: with a token for everything, and without a token. Every response must match the description, and none may
be an internal error.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.published import add_out, publish
from benchmarks.service_table import fill
from benchmarks.serving import serving
from tuner.evidence import tokens
from tuner.evidence.store import Store
from tuner.settings import database_url

_CONFIG: Final = Path(__file__).parents[1] / "tests" / "schemathesis.toml"


def main() -> None:
    """Starts the service, sends the requests and counts the answers."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--examples", type=int, default=100, help="at most, of each operation and phase")
    options.add_argument("--bests", type=int, default=300)
    add_out(options)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Store.open(database_url(str(folder / "fuzz.db"))) as store:
            fill(store, given.bests)
            _, secret = tokens.make(store, "fuzz", ["admin"])
        lines = ["| token | operations | cases | passed | failures of the service |", "| --- | --- | --- | --- | --- |"]
        with serving(folder, folder / "fuzz.db") as ours:
            for who, header in (("admin", f"Authorization: Bearer {secret}"), ("none", "X-Token: none")):
                lines.append(ask(f"http://127.0.0.1:{ours.port}", who, header, given.examples, folder))
                print(lines[-1], flush=True)
        defects = (folder / "service.log").read_text().count('"unexpected failure"')
    text = "\n".join([*lines, "", f"Failures that the service logged: {defects}."])
    print(text)
    publish("fuzz_api", given.out, text)


def ask(url: str, who: str, header: str, examples: int, folder: Path) -> str:
    """Runs schemathesis once and returns a table row; `folder` receives the files it leaves.

    Raises:
        RuntimeError: a response did not match the description; the message is schemathesis' report.
    """
    command = [str(Path(sys.executable).with_name("schemathesis")), "--no-color", "--config-file", str(_CONFIG), "run",
               f"{url}/openapi.json", "--max-examples", str(examples), "--header", header]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    counted = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    operations = re.search(r"Tested: (\d+)", done.stdout)
    if done.returncode or counted is None or operations is None:
        raise RuntimeError(done.stdout[-20_000:] + done.stderr)
    return f"| {who} | {operations[1]} | {counted[1]} | {counted[2]} | {done.stdout.count('Server error')} |"


if __name__ == "__main__":
    main()
