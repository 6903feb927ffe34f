"""Setting: a strategy's input besides the replay, and its models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from benchmarks.search.replay import Replay, class_of
from space.config import Config
from space.kinds.gemm import Gemm
from space.plug import Family
from tuner.evidence.similarity import kind_of, octaves, reaches
from tuner.prediction.grow import TREES
from tuner.prediction.judge import Judgement, judge
from tuner.prediction.learned import LearnedModel
from tuner.prediction.train import train


@dataclass
class Setting:
    """One run of the benchmark.

    Attributes:
        replays: all replays; a strategy's split selects its training data.
        family: family of the candidates.
        model_seeds: number of different forests per held-out problem. The forests of seed 0 are judged once, on the
            training problems, and the judgement holds for all.
        trees: trees per forest.
        teachers: number of replays, the last ones, that only teach.
    """

    replays: Sequence[Replay]
    family: Family
    model_seeds: int = 10
    trees: int = TREES
    teachers: int = 0
    _models: dict[tuple[tuple[int, ...], int], LearnedModel] = field(default_factory=dict)
    _judgements: dict[tuple[int, ...], Judgement] = field(default_factory=dict)

    @property
    def searched(self) -> Sequence[Replay]:
        """The replays that are searched; in `replays` they have the same places."""
        return self.replays[: len(self.replays) - self.teachers]

    def model(self, teachers: tuple[int, ...], seed: int) -> LearnedModel:
        """A model trained on the replays at these indices only."""
        key = (teachers, seed % self.model_seeds)
        if key not in self._models:
            groups = [self.replays[place].group for place in teachers]
            if teachers not in self._judgements:
                self._judgements[teachers] = judge(groups, self.family, groups[0].device, 0, self.trees)
            judgement = self._judgements[teachers]
            self._models[key] = train(groups, self.family, groups[0].device, key[1], self.trees, judgement)
        return self._models[key]

    def forget(self) -> None:
        """Frees the models: ten for each of forty problems would take gigabytes."""
        self._models.clear()
        self._judgements.clear()

    def winners(self, replay: Replay, teachers: tuple[int, ...]) -> tuple[Config, ...]:
        """Winner and runner-up of each training problem of the same kind, most similar first, as from a store."""
        known = [self.replays[place] for place in teachers]
        alike = [other for other in known if kind_of(other.problem) == kind_of(replay.problem)]
        kin = [other for other in alike if reaches(replay.problem, other.problem)]
        kin.sort(key=lambda other: octaves(replay.problem, other.problem))
        ahead = ((other, place) for other in kin for place in other.time_us.argsort(kind="stable")[:2])
        return tuple(dict.fromkeys(other.configs[place] for other, place in ahead))


#: Indices of the training replays for a searched one.
Split = Callable[[Replay, Sequence[Replay]], tuple[int, ...]]


def without_problem(replay: Replay, others: Sequence[Replay]) -> tuple[int, ...]:
    """All but those of the same problem."""
    return tuple(place for place, other in enumerate(others) if other.problem != replay.problem)


def without_tenth(replay: Replay, others: Sequence[Replay]) -> tuple[int, ...]:
    """All but those of the same tenth; a shape is in one tenth in all its dtypes and layouts."""
    return tuple(place for place, other in enumerate(others) if tenth_of(other.problem) != tenth_of(replay.problem))


def tenth_of(problem: Gemm) -> int:
    """A tenth of all problems, by the digits of the shape's checksum."""
    return crc32(problem.shape.encode()) % 10


def without_class(replay: Replay, others: Sequence[Replay]) -> tuple[int, ...]:
    """All but those of the same class of shapes."""
    return tuple(place for place, other in enumerate(others) if class_of(other.problem) != class_of(replay.problem))
