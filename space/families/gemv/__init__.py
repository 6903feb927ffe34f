"""gemv: one to four rows of A times weights that are read once, at the rate of memory."""

from __future__ import annotations

from typing import Final

from space.families.gemv.derive import DERIVED, problem_constants
from space.families.gemv.estimate import estimate_us
from space.families.gemv.knobs import KNOBS
from space.families.gemv.rules import LEGAL, TARGETS
from space.families.gemv.worth import WORTH
from space.family import Family

#: Three recorded problems, all of one row of A, are too few to ground its estimate: tuning tries it, but where another
#: estimate is grounded, it never answers for an unmeasured problem. On an H200, it was the fastest for two of the
#: three.
GEMV: Final = Family(
    "gemv", TARGETS, KNOBS, DERIVED, LEGAL + WORTH, estimate_us, problem_constants=problem_constants, grounded=False,
    special=True, structure=("rows", "split_warps", "lanes", "columns", "split_k"),
)  # fmt: skip
