"""Asks a service of a process in which the toy kind was registered first, and prints the answers as JSON lines."""

from __future__ import annotations

import json
import sys

from tests import toy_kind

toy_kind.join()

from fastapi.testclient import TestClient  # noqa: E402

from api.app import create_app  # noqa: E402  (a service's schemas follow the kinds that are registered when it starts)
from gemmtune.client import Client  # noqa: E402
from tests.integration.api.asking import serving  # noqa: E402
from tuner.evidence.store import Store  # noqa: E402


def main(url: str) -> None:
    """Answers each line of standard input: method, path, and a body or null."""
    with Store.open(url) as store, TestClient(create_app(store)) as http:
        for line in sys.stdin:
            method, path, body = json.loads(line)
            response = http.request(method, path, json=body)
            sys.stdout.write(json.dumps([response.status_code, response.json()]) + "\n")
    with Store.open(url) as store, serving(create_app(store)) as address, Client(address) as client:
        found = client.best(64, 128, 256, kind="scaled_gemm", scale="per_row")
        sys.stdout.write(json.dumps(dict(found.document)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
