"""A database host that vanishes without a FIN, on a real network stack: where the kernel lends network namespaces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from sqlalchemy.engine import make_url

from benchmarks.postgres import Postgres

#: Only root may make a network namespace without a user namespace around it.
UNSHARE = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-Urn"]


def lent() -> bool:
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    made = [*UNSHARE, "ip", "link", "add", "cable0", "type", "veth", "peer", "name", "cable1"]
    return subprocess.run(made, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not lent(), reason="this kernel lends no network namespaces")
def test_a_statement_ends_soon_after_its_host_has_vanished_and_the_next_one_reaches_its_successor(
    postgres: Postgres,
) -> None:
    url = make_url(postgres.database())
    command = [*UNSHARE, sys.executable, "-m", "tests.vanishing_host", str(url.query["host"]), str(url.database)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["idle"]
    assert "PostgreSQL database can't be used" in found["said"]
    # Keepalives end it after 3 s; without them it would wait for as long as a server may be silent.
    assert found["noticed_seconds"] < 20
    assert found["back_seconds"] < 15
