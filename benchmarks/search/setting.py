"""Setting: what strategies are handed beside a replay, and the models that they may learn from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.search.replay import Replay, class_of
from space.config import Config
from space.family import Family
from tuner.evidence.kinship import kind_of, octaves, reaches
from tuner.prediction.learned import LearnedModel
from tuner.prediction.train import TREES, Judgement, judge, train


@dataclass
class Setting:
    """One run of the benchmark.

    Attributes:
        replays: all of them; a strategy learns from those that its split leaves it.
        family: of the candidates.
        model_seeds: so many different forests are grown for each problem that is left out. How far they are to be
            believed is judged once, with the forests of seed 0, on the problems that teach.
        trees: of each forest.
    """

    replays: Sequence[Replay]
    family: Family
    model_seeds: int = 10
    trees: int = TREES
    _models: dict[tuple[tuple[int, ...], int], LearnedModel] = field(default_factory=dict)
    _judgements: dict[tuple[int, ...], Judgement] = field(default_factory=dict)

    def model(self, teachers: tuple[int, ...], seed: int) -> LearnedModel:
        """A model that has seen the replays at these places and nothing else."""
        key = (teachers, seed % self.model_seeds)
        if key not in self._models:
            groups = [self.replays[place].group for place in teachers]
            if teachers not in self._judgements:
                self._judgements[teachers] = judge(groups, self.family, groups[0].device, 0, self.trees)
            judgement = self._judgements[teachers]
            self._models[key] = train(groups, self.family, groups[0].device, key[1], self.trees, judgement)
        return self._models[key]

    def forget(self) -> None:
        """Gives the models back: ten of each of forty problems would take gigabytes."""
        self._models.clear()
        self._judgements.clear()

    def winners(self, replay: Replay, teachers: tuple[int, ...]) -> tuple[Config, ...]:
        """First and second of each teacher of the same kind, most similar first, as a store would name them."""
        known = [self.replays[place] for place in teachers]
        alike = [other for other in known if kind_of(other.problem) == kind_of(replay.problem)]
        kin = [other for other in alike if reaches(replay.problem, other.problem)]
        kin.sort(key=lambda other: octaves(replay.problem, other.problem))
        return tuple(dict.fromkeys(other.configs[place] for other in kin for place in other.time_us.argsort()[:2]))


#: Which replays may teach when one is asked: their places.
Split = Callable[[Replay, Sequence[Replay]], tuple[int, ...]]


def without_problem(replay: Replay, others: Sequence[Replay]) -> tuple[int, ...]:
    """All but those of the same problem."""
    return tuple(place for place, other in enumerate(others) if other.problem != replay.problem)


def without_class(replay: Replay, others: Sequence[Replay]) -> tuple[int, ...]:
    """All but those of the same class of shapes."""
    return tuple(place for place, other in enumerate(others) if class_of(other.problem) != class_of(replay.problem))
