"""A store filled from recordings of a real H200, without compiling anything; and a campaign with its fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.dashboard.stores import distinct, store_study
from space.kinds.gemm import Gemm
from tests.fleet import Fleet, failing
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import CampaignBudget, CampaignRequest
from workers.measurement import Outcome
from workers.recording import read_recording

RECORDED: Final = Path(__file__).resolve().parents[2] / "recorded" / "h200"
#: One of each kind of shape; three are of one weight.
FILES: Final = (
    "bf16_nt_4096x4096x4096", "bf16_nt_8x6144x4096", "bf16_nt_64x6144x4096", "bf16_nt_2048x6144x4096",
    "bf16_nt_1x4096x14336", "fp8_e4m3_nt_64x4096x7168", "bf16_nn_8192x4096x28672",
)  # fmt: skip
#: Bests in the filled store: of the recordings, and of the one problem of the campaign that is done.
BESTS: Final = len(FILES) + 1
FIRST: Final = "gemm:bf16,bf16,bf16,f32:nt:4096x4096x4096:b1:none"
SCREENED: Final = 60
#: Names that would run if a page took them for markup.
NASTY: Final = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>'


def fill(store: Store) -> None:
    """Bests of all `FILES`, and one campaign: problems that are done, open, waiting and parked; a lost round."""
    for name in FILES:
        _problem(store, RECORDED / f"{name}.parquet")
    _campaign(store)


def _problem(store: Store, path: Path) -> None:
    recording = read_recording(path)
    first, _ = recording.measurements[0]
    finals = [final for final in distinct(recording, "final") if final.policy is first.policy]
    store_study(store, recording, distinct(recording, "screen")[:SCREENED], finals)


def _campaign(store: Store) -> None:
    fleet = Fleet(store)
    problems = [Gemm.parse(f"{m}x512x512") for m in (64, 128, 192, 256, 320)]
    request = CampaignRequest(f"nightly {NASTY}", tuple(problems), (("NVIDIA H200", "cuda"),), CampaignBudget(20, 11))
    fleet.campaigns.create(request)
    first, second = fleet.hand(0), fleet.hand(1)
    first.work(first.claimed())
    task = second.claimed()
    search = second.begin(task)
    batch = search.propose()
    second.announce(task, batch)
    problem = next(problem for problem in problems if problem.key == task.problem_key)
    second.report(task, [failing(config, problem, Outcome.LAUNCH) for config in batch])
    first.begin(first.claimed())
