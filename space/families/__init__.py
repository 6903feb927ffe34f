"""Kernel families by name. A new family is one folder here and one line below."""

from __future__ import annotations

from typing import Final

from space.families.cublaslt import CUBLASLT
from space.families.gemv import GEMV
from space.families.sm90_wgmma import SM90_WGMMA
from space.family import Family

FAMILIES: Final[dict[str, Family]] = {family.name: family for family in (SM90_WGMMA, GEMV, CUBLASLT)}
