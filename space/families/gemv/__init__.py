"""gemv: one to four rows of A times weights that are read once, at the rate of memory."""

from __future__ import annotations

from typing import Final

from space.families.gemv.derive import DERIVED, problem_constants
from space.families.gemv.estimate import estimate_us
from space.families.gemv.knobs import KNOBS
from space.families.gemv.rules import LEGAL, TARGETS
from space.families.gemv.worth import WORTH
from space.plug import Family

#: Its estimate is not grounded: it is half as long again as what products of 2 µs take. Tuning tries it, but without a
#: learned model of it, it answers for no unmeasured problem for which another estimate is grounded.
GEMV: Final = Family(
    "gemv", TARGETS, KNOBS, DERIVED, LEGAL + WORTH, estimate_us, problem_constants=problem_constants, grounded=False,
    special=True, structure=("rows", "split_warps", "lanes", "columns", "split_k"),
)  # fmt: skip
