"""PostgreSQL that answers, and says no: what a user is told, and who gets which answer."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.postgres import Postgres
from tuner.evidence import postgresql

FORKS = """
import os, sys
from tuner.errors import StoreError
from tuner.evidence.store import Store
store = Store.open(sys.argv[1])
expected = store.counts()
store.check_writable()
child, wrong = os.fork(), 0
for _ in range(100):
    try:
        store.check_writable()
        wrong += store.counts() != expected
    except StoreError:
        wrong += 1
if child:
    wrong += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
os._exit(min(wrong, 100))
"""


def test_a_forked_child_and_its_parent_get_their_own_answers(postgres: Postgres) -> None:
    assert subprocess.run([sys.executable, "-c", FORKS, postgres.database()], timeout=120, check=False).returncode == 0


@pytest.mark.parametrize(("last", "said"), [
    ('FATAL:  password authentication failed for user "u"', "it refused the login"),
    ('FATAL:  no pg_hba.conf entry for host "10.0.0.7"', "it takes no connection of this user from here"),
    ("FATAL:  the database system is starting up", "it is starting or shutting down"),
    ("Connection refused", "it can't be reached"),
])  # fmt: skip
def test_what_one_of_several_addresses_answers_counts(last: str, said: str) -> None:
    refused = "connection failed: connection to server at \"127.0.0.1\", port 5432 failed: Connection refused"
    told, _ = postgresql.explained(f"{refused}\n- host: 'localhost', hostaddr: '::1': connection failed: {last}", None)
    assert told.startswith(said)
