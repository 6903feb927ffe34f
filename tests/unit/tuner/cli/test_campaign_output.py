"""What campaign commands print of a campaign's progress."""

from __future__ import annotations

import pytest

from tuner.cli.campaign_output import progress_line
from tuner.fleet.campaigns.documents import Document


@pytest.mark.parametrize(("tried", "said"), [(0, "0 candidates"), (1, "1 candidate"), (1_024, "1,024 candidates")])
def test_one_candidate_is_no_candidates(tried: int, said: str) -> None:
    ended = {"waiting": 0, "open": 0, "done": 1, "parked": 0, "skipped": 0}
    found: Document = {
        "campaign": {"id": 3, "status": "running"}, "problems": ended, "tried": tried, "workers": 1,
        "rounds_running": 0, "candidates_a_second": 0, "seconds_left": None,
    }  # fmt: skip
    assert progress_line(found).split(" · ") == [
        "campaign 3 running", "1/1 problems ended", said, "workers 1, rounds running 0"
    ]  # fmt: skip
