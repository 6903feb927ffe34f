"""A token holder who attacks the fleet while a storm rages: it tries to take rounds, workers and results of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import httpx2
from sqlalchemy import select

from benchmarks.repeated import Repeated
from tuner.errors import StoreError
from tuner.evidence.campaign_models import RoundRow
from tuner.evidence.models import ProblemRow
from tuner.evidence.store import Store

_PAUSE_SECONDS: Final = 0.3


class Thief(Repeated):
    """Attacks between `__enter__` and `__exit__`. It knows every number and every lease, which no real one does.

    Args:
        store: tells it the rounds.
        secret: its own token, with scope `work`.
        theirs: the token of the workers, for reports that come late or can't be stored.

    Attributes:
        statuses: answers by attack and status.
    """

    def __init__(self, url: str, store: Store, secret: str, theirs: str) -> None:
        self._store = store
        self._http = {name: httpx2.Client(base_url=url, timeout=10, headers={"Authorization": f"Bearer {token}"})
                      for name, token in (("stolen", secret), ("owned", theirs))}  # fmt: skip
        super().__init__("thief")
        self.statuses: Counter[tuple[str, int]] = Counter()

    @property
    def accepted(self) -> int:
        """Attacks that the service did not refuse."""
        return sum(count for (_, status), count in self.statuses.items() if status < 300)

    def __exit__(self, *raised: Any) -> None:  # noqa: ANN401  (what the base class takes)
        super().__exit__(*raised)
        for client in self._http.values():
            client.close()

    def _run(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            for name, who, path, body in self._attacks():
                with suppress(httpx2.TransportError):
                    self.statuses[name, self._http[who].post(path, json=body).status_code] += 1

    def _attacks(self) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
        """Name of the attack, whose token it uses, path and body."""
        running, ended = self._round("running"), self._round("done")
        if running:
            round_id, lease, worker, problem = running
            rounds, under = f"/v1/rounds/{round_id}", {"lease": lease}
            forged = {"config": "cublaslt:rank=0", "stage": "final", "policy": "rounds", "outcome": "timeout"}
            yield "claim", "stolen", f"/v1/workers/{worker}:claim", {}
            yield "heartbeat", "stolen", f"/v1/workers/{worker}:heartbeat", {"round_id": round_id}
            yield "leave", "stolen", f"/v1/workers/{worker}:leave", {}
            yield "drain", "stolen", f"/v1/workers/{worker}:drain", {}
            yield "announce", "stolen", f"{rounds}:announce", under | {"stage": "screen", "configs": ["gemv:x=1"]}
            yield "report", "stolen", f"{rounds}:finish", under | {"problem_key": problem, "ended": "stolen"}
            yield "park", "stolen", f"{rounds}:finish", under | {"hopeless": True, "failure": "parked by a stranger"}
            poisoned = under | {"problem_key": problem, "measurements": [forged | {"detail": "a\0b"}]}
            yield "poison", "owned", f"{rounds}:finish", poisoned
        if ended:
            round_id, lease, _, problem = ended
            late = {"lease": lease, "problem_key": problem, "failure": "too late"}
            yield "late report", "owned", f"/v1/rounds/{round_id}:finish", late

    def _round(self, status: str) -> tuple[int, str, int, str] | None:
        query = select(RoundRow.id, RoundRow.lease, RoundRow.worker_id, ProblemRow.key)
        query = query.join(ProblemRow, ProblemRow.id == RoundRow.problem_id).where(RoundRow.status == status)
        with suppress(StoreError), self._store.transaction() as session:
            row = session.execute(query.order_by(RoundRow.id.desc()).limit(1)).one_or_none()
            if row is not None and row.lease is not None and row.worker_id is not None:
                return row.id, row.lease, row.worker_id, row.key
        return None
