"""Grounds: sentences that say how a measured time was taken, and what an expected one is based on."""

from __future__ import annotations

from typing import Final

from space.config import Config
from space.devices import DeviceProfile
from space.families.common import marks_weights, starts_early
from space.family import family_named
from space.problem import Problem
from tuner.evidence.records import Best
from tuner.prediction.learned import LearnedModel
from workers.measurement import Policy

#: Of an early launch that was timed under another policy than the chains, as all were while there was but one.
_BESIDE_COPIES: Final = "it starts early (pdl=1) and overlapped its own copies: behind plain kernels it takes longer"
#: Of tiles whose weights stream through L2, where copies rotated through three times L2 (docs/kernels/memory.md).
_KEPT_IN_L2: Final = (
    "its cache_hint kept a part of the weights in L2 from copy to copy: where a program reads gigabytes in between, it "
    "takes 3 % longer on average; {} measures it so"
)


def taken(best: Best, note: str) -> tuple[str, ...]:
    """Sentences on the samples of a best's winner.

    Args:
        note: what the measurement's readers should know; empty where that is told elsewhere.
    """
    winner = best.winner.measurement
    alone = starts_early(winner.config) and winner.policy not in (Policy.CHAIN, Policy.CHAIN_PDL)
    count = len(winner.samples_us)
    samples = f"{count} sample{'s' * (count != 1)} of stage {winner.stage}"
    kept = marks_weights(winner.config) and not best.winner.provenance.rotation_bytes
    # A replay repeats what was recorded, and is stale of no rotation.
    again = "`gemmtune tune` on the GPU" if best.device_kind == "recorded" else "`gemmtune retune --stale`"
    said = samples, note, _BESIDE_COPIES if alone else "", _KEPT_IN_L2.format(again) if kept else ""
    return tuple(filter(None, said))


def expected(
    problem: Problem, profile: DeviceProfile, config: Config, model: LearnedModel | None
) -> tuple[str, ...]:
    """Sentences on the prediction of a config's time.

    Args:
        model: the learned one of the config's family.
    """
    # A model that this very card taught has learned its times, whatever its profile knows of its rates.
    if not profile.measured and (model is None or not model.learned_here):
        rates = f"rates of {profile.name} are {profile.sources['tensor_tflops']}; none was measured"
        if model is None:
            return (rates,)
        return rates, f"configs are ranked as on {model.facts.device}, which has the same multiprocessors"
    if model is None and not family_named(config.family).grounded:
        return (f"the analytic model of {config.family}, whose errors too few measurements show",)
    if model is None:
        return ("the analytic model's errors on recorded problems",)
    facts = model.facts
    learned = (
        f"learned from {facts.candidates:,} candidates of {len(facts.problems)} problems on "
        f"{' and '.join(model.devices)}; on problems left out its first choice reached {facts.held_out_share:.1%} "
        f"of the best measured, at least {facts.held_out_worst:.1%}"
    )
    return learned, model.domain(problem).sentence
