"""The registry of families and problem kinds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from space.errors import FamilyError, ProblemError
from space.families.gemv import GEMV
from space.family import FAMILIES, config_named
from space.kind import KINDS
from space.kinds.gemm import GEMM
from space.registry import register, registered_modules, unregister


def test_a_family_and_a_kind_may_have_the_same_name() -> None:
    family, kind = replace(GEMV, name="same"), replace(GEMM, name="same")
    register(family, "elsewhere.family")
    register(kind, "elsewhere.kind")
    try:
        assert FAMILIES["same"] is family
        assert KINDS["same"] is kind
        assert registered_modules() == ("elsewhere.family", "elsewhere.kind")
        unregister(family)
        assert "same" not in FAMILIES
        assert registered_modules() == ("elsewhere.kind",)
    finally:
        unregister(kind)
    assert "same" not in KINDS


def test_a_family_that_is_gone_has_no_configs() -> None:
    family = replace(GEMV, name="gone")
    register(family, "elsewhere.family")
    try:
        assert config_named("gone:warps=4")["warps"] == 4
    finally:
        unregister(family)
    with pytest.raises(FamilyError, match="family 'gone' is unknown"):
        config_named("gone:warps=4")


def test_a_name_belongs_to_one_family_and_to_one_kind() -> None:
    with pytest.raises(FamilyError, match="family 'gemv' is already registered: choose another name"):
        register(replace(GEMV), "elsewhere")
    with pytest.raises(ProblemError, match="problem kind 'gemm' is already registered: choose another name"):
        register(replace(GEMM), "elsewhere")
    assert registered_modules() == ()
