"""The outlook of a study: what trying more candidates is still expected to gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from space.config import Config
from space.devices import DeviceProfile, profile_named
from space.enumerate import enumerate_all
from space.explain import legal_among
from space.family import families_for
from space.problem import Problem
from tuner.evidence.store import Store
from tuner.prediction.learned import LearnedModel
from tuner.studying.candidates import ranked
from tuner.studying.guidance import Guidance, order_for
from tuner.studying.order import MARGIN
from tuner.studying.records import Trial, standing
from tuner.views import studies


@dataclass(frozen=True, slots=True)
class StudyOutlook:
    """The gain that a study may still find.

    Attributes:
        tried: candidates screened.
        pool: candidates that a GPU of this model is asked to measure, with those that were tried.
        chance: that an untried one is faster than the best by more than `margin`; None before the first correct one.
        gain: expected share of the best time that trying all of them would save; None before the first correct one.
        margin: as a share of the best time.
    """

    study_id: int
    tried: int
    pool: int
    chance: float | None
    gain: float | None
    margin: float


def outlook(store: Store, study_id: int, model: LearnedModel | None) -> StudyOutlook:
    """The outlook of a study, by the order that a model gives its candidates.

    Args:
        model: of the study's device; without one the families' own estimates order them.

    Raises:
        UnknownStudy: no study has this id.
        ProfileError: nothing is known of its device.
    """
    study = studies.in_short(store, study_id)
    screened = [stored.measurement for stored in store.measurements_of(study_id, "screen")]
    profile = profile_named(study.device)
    pool = _pool(study.problem, profile, [each.config for each in screened])
    # A config that a rule forbids by now was tried, but won't be served: it is no best to compare with.
    legal = legal_among(study.problem, pool, profile)
    if not legal:
        return StudyOutlook(study_id, len(screened), len(pool), None, None, MARGIN)
    order = order_for(Guidance(model), study.problem, [config for config in pool if config in legal], study.device)
    for each in standing([Trial.of(one) for one in screened], store.refuted_in(study_id)):
        order.tell(each.config, each.median_us)
    left = order.outlook()
    chance, gain = (left.chance, left.gain) if left else (None, None)
    return StudyOutlook(study_id, len(screened), len(pool), chance, gain, MARGIN)


def _pool(problem: Problem, device: DeviceProfile, tried: Sequence[Config]) -> list[Config]:
    """Candidates of all competing families, but those expected to be far slower than the best, and the tried ones."""
    spaces = enumerate_all(families_for(device.arch.name, problem), problem, device)
    return list(dict.fromkeys([*(config for _, config in ranked(spaces, device)), *tried]))
