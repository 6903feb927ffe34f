"""Guidance: a search's knowledge before it measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from space.config import Config
from space.devices import find_profile
from space.family import family_for
from space.problem import Problem
from tuner.prediction.expectation import expected_of
from tuner.prediction.files import model_for
from tuner.prediction.learned import LearnedModel
from tuner.prediction.portfolio import first_choice
from tuner.studying.order import Order


@dataclass(frozen=True)
class Guidance:
    """A search's knowledge before it measures.

    Attributes:
        model: learned from measurements; without one the family's own estimate ranks the candidates.
        winners: of similar problems, most similar first; the search tries them early.
        why: one sentence that names the model or says why there is none; empty if no model was looked for.
    """

    model: LearnedModel | None = None
    winners: tuple[Config, ...] = ()
    why: str = ""

    def model_of(self, device: str) -> LearnedModel | None:
        """The model as it predicts on `device`; None where it was learned on other multiprocessors."""
        return self.model.on(device) if self.model else None


def guidance_for(device: str, model_dir: Path) -> Guidance:
    """The guidance for `device`: a model trained in `model_dir`, else the one that ships."""
    choice = model_for(device, model_dir)
    return Guidance(choice.model, why=choice.why)


def order_for(guidance: Guidance, problem: Problem, candidates: Sequence[Config], device: str) -> Order:
    """The order in which to try `candidates`; the config that would be answered without a measurement comes early."""
    model, profile = guidance.model_of(device), find_profile(device)
    expected, answered = expected_of(problem, candidates, device, model), list[Config]()
    if profile and model is None:
        # The family that answers may not be the one that is expected to be fastest (`Family.grounded`).
        family = family_for(profile.arch.name, problem).name
        rows = [row for row, config in enumerate(candidates) if config.family == family]
        answered = [candidates[row] for row in sorted(rows, key=lambda row: expected.log_us[row])[:1]]
    elif profile and model and (predicted := first_choice(model, problem, profile)):
        answered = [predicted.config]
    return Order(candidates, expected, (*answered, *guidance.winners))
