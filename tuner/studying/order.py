"""Order: in which order a problem's candidates are tried.

The expected times decide: those of the learned model where there is one, the family's estimates otherwise. What led
other studies of the problem, and winners of similar ones, come right after the first candidate. Results then move up
candidates that resemble others which were faster than expected (`tuner.prediction.correction`), and so do those of
which little is known yet. A search may ask for some sooner.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from space.config import Config
from space.families.common import bare_twin, plain_twin
from space.knobs import KnobValue
from space.structures import by_structure
from tuner.prediction.correction import Correction
from tuner.prediction.expectation import Expectation

#: How many standard deviations below its mean a candidate is ranked.
OPTIMISM: Final = 0.6
#: The predicted answer and winners of similar problems that are tried before results decide.
MOST_WINNERS: Final = 4
#: The best expected candidates, which results reorder; the rest of a longer list follows as expected.
REORDERED: Final = 4096
#: How much faster a candidate must be to count: the share within which two candidates tie.
MARGIN: Final = 0.02
#: Joint draws behind an outlook, and the most promising candidates that they cover.
DRAWS: Final = 512
COVERED: Final = 192


@dataclass(frozen=True, slots=True)
class Outlook:
    """The gain that a search may still find.

    Attributes:
        chance: that an untried candidate is faster than the best by more than `margin`.
        gain: expected share of the best time that trying all candidates would save.
        margin: as a share of the best time.
    """

    chance: float
    gain: float
    margin: float


class Order:
    """The candidates of one study, and what was learned of them.

    Args:
        candidates: none twice.
        expected: of each of them.
        winners: the predicted answer and winners of similar problems, most similar first; only candidates count. Of
            one that starts early its plain twin counts: a search screens no other.
    """

    def __init__(self, candidates: Sequence[Config], expected: Expectation, winners: Sequence[Config] = ()) -> None:
        self._candidates, self._expected = candidates, expected
        self._row = {config: row for row, config in enumerate(candidates)}
        self._ranking = np.argsort(expected.log_us, kind="stable")
        self._places = np.argsort(self._ranking)
        self._head = self._ranking[:REORDERED]
        # Candidates of a recording mark weights as their winners did, today's don't.
        twins = chain.from_iterable((plain_twin(config), bare_twin(config)) for config in winners)
        known = dict.fromkeys(self._row[config] for config in twins if config in self._row)
        self._first = [int(self._ranking[0]), *list(known)[:MOST_WINNERS]] if candidates else []
        self._taken = np.zeros(len(candidates), dtype=np.bool_)
        #: Log times by row; NaN for a candidate that failed.
        self._results: dict[int, float] = {}

    def tell(self, config: Config, time_us: float) -> None:
        """Records a candidate's time, proposed here or not: infinite if it failed."""
        row = self._row.get(config)
        if row is not None:
            self._taken[row] = True
            self._results[row] = math.log(time_us) if math.isfinite(time_us) else math.nan

    def take(self, count: int, sooner: Iterable[Config] = ()) -> list[Config]:
        """The next `count` candidates, `sooner` before others; fewer where fewer are left."""
        first = self._first if self._taken.sum() < len(self._first) else []
        ahead = dict.fromkeys([*first, *(self._row[config] for config in sooner), *self._ranked()])
        rows = [row for row in ahead if not self._taken[row]][:count]
        self._taken[rows] = True
        return [self._candidates[row] for row in rows]

    def place(self, config: Config) -> int:
        """A config's place among the candidates as expected, whatever was measured; behind all if it is none."""
        row = self._row.get(config)
        return len(self._row) if row is None else int(self._places[row])

    def first_of_each(self, structures: Iterable[tuple[KnobValue, ...]]) -> list[Config]:
        """The first expected candidate of each structure that has one among those that results reorder, in the order of
        the structures."""
        expected = by_structure((self._candidates[row] for row in self._head), lambda config: config)
        return [expected[structure][0] for structure in structures if structure in expected]

    def outlook(self, beside_us: float = math.inf) -> Outlook | None:
        """The gain still to find; None before the first correct candidate.

        Args:
            beside_us: the fastest time of a config that is no candidate here, but could be served.
        """
        log_us = [told for told in self._results.values() if not math.isnan(told)]
        if math.isfinite(beside_us):
            log_us.append(math.log(beside_us))
        if not log_us:
            return None
        rows = self._head[~self._taken[self._head]]
        if not len(rows):
            return Outlook(0.0, 0.0, MARGIN)
        return self._among(rows, min(log_us))

    def _among(self, rows: npt.NDArray[np.intp], incumbent: float) -> Outlook:
        """The gain of trying these candidates, over a best with this log time."""
        features, log_us = self._expected.features[rows], self._expected.log_us[rows]
        correction = self._correction()
        ahead = np.argsort(log_us + correction.mean(features), kind="stable")[:COVERED]
        draws = correction.draws(features[ahead], DRAWS, seed=len(self._results))
        fastest = (log_us[ahead] + draws).min(axis=1) - incumbent
        chance = float(np.mean(fastest < math.log1p(-MARGIN)))
        return Outlook(chance, float(np.mean(np.maximum(-np.expm1(fastest), 0))), MARGIN)

    def _ranked(self) -> list[int]:
        if not self._results:
            return list(self._ranking.tolist())
        features, correction = self._expected.features[self._head], self._correction()
        score = self._expected.log_us[self._head] + correction.mean(features) - OPTIMISM * correction.spread(features)
        return [*self._head[np.argsort(score, kind="stable")].tolist(), *self._ranking[REORDERED:].tolist()]

    def _correction(self) -> Correction:
        rows = list(self._results)
        residuals = np.array(list(self._results.values())) - self._expected.log_us[rows]
        return Correction(self._expected.features[rows], residuals, self._expected.doubt)
