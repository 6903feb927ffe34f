"""Configs: text in, canonical text out."""

from __future__ import annotations

import pytest

from space.config import Config
from space.errors import ConfigError, FamilyError, SpaceError
from space.family import FAMILIES, config_named, family_for, family_named

FAMILY = family_named("sm90_wgmma")


def test_knobs_not_named_take_their_defaults() -> None:
    config = FAMILY.config({"tile_n": 256})
    assert config["tile_n"] == 256
    assert {name: config[name] for name in ("tile_m", "tile_k")} == {"tile_m": 128, "tile_k": 64}


def test_a_config_survives_its_own_text() -> None:
    config = FAMILY.config({"tile_m": 256, "epilogue": "direct", "raster": "along_n"})
    assert FAMILY.parse(config.knobs_text) == config
    assert config.key == f"sm90_wgmma:{config.knobs_text}"


@pytest.mark.parametrize(
    ("family", "text", "named"),
    [
        ("sm90_wgmma", "", {}),
        ("sm90_wgmma", "tile_n=64, stages = 3", {"tile_n": 64, "stages": 3}),
        ("sm90_wgmma", "stages=3,tile_n=64", {"tile_n": 64, "stages": 3}),
        ("cublaslt", "rank=3", {"rank": 3}),
    ],
)
def test_a_text_may_leave_knobs_out_in_any_order(family: str, text: str, named: dict[str, int]) -> None:
    config = family_named(family).parse(text)
    assert config == family_named(family).config(named)
    assert {name: config[name] for name in named} == named


@pytest.mark.parametrize("family", FAMILIES)
def test_every_value_of_every_knob_is_read_as_it_is_written(family: str) -> None:
    plug = family_named(family)
    for knob in plug.knobs:
        for value in (*knob.domain[:40], knob.domain[-1]):
            assert plug.parse(plug.config({knob.name: value}).knobs_text)[knob.name] == value


def test_a_config_survives_columns() -> None:
    from space.kinds.gemm import Gemm

    configs = [FAMILY.config({"epilogue": word, "tile_n": n}) for word in ("direct", "tma") for n in (8, 200, 256)]
    columns = FAMILY.columns(Gemm.parse("64x64x64"), configs)
    assert [FAMILY.config_at(columns, row) for row in range(len(configs))] == configs


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tile_m=100", "tile_m = '100'"),
        ("tile=128", "'tile'"),
        ("tile_m", "'tile_m'"),
        ("tile_m=", "'tile_m='"),
        ("=4", "'=4'"),
        ("stages=4,stages=5", "stages is given twice"),
        ("epilogue=smem", "epilogue = 'smem'"),
        ("stages=-1", "stages = '-1'"),
        ("sm90_wgmma:swap_ab=0,tile_m=128", "as in --family sm90_wgmma, and begin with swap_ab=0"),
    ],
)
def test_a_malformed_config_is_named_in_the_refusal(text: str, named: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        FAMILY.parse(text)
    assert named in str(refusal.value)


@pytest.mark.parametrize("left_out", ["algorithm", "tile", "workspace_bytes"])
def test_a_part_of_an_algorithm_is_refused_with_what_it_lacks(left_out: str) -> None:
    whole = family_named("cublaslt").config({"algorithm": 66, "tile": 24}).key
    assert config_named(whole)["tile"] == 24
    part = ",".join(knob for knob in whole.split(",") if not knob.startswith(left_out))
    with pytest.raises(ConfigError, match=rf"names all of algorithm, .*, or none: this one lacks {left_out}; give"):
        config_named(part)


def test_words_are_no_numbers() -> None:
    with pytest.raises(ConfigError, match="a word"):
        FAMILY.config({}).number("epilogue")


def test_unknown_families_are_refused_with_the_known_ones() -> None:
    with pytest.raises(FamilyError, match="sm90_wgmma"):
        family_named("sm70_hmma")
    with pytest.raises(FamilyError, match="sm_90a"):
        family_for("sm_100a")


def test_configs_hash_by_value() -> None:
    assert len({FAMILY.config({}), FAMILY.config({"tile_m": 128}), Config("x", ())}) == 2


def test_a_key_names_its_config_and_nothing_else() -> None:
    config = FAMILY.config({"tile_n": 96, "raster": "along_n"})
    assert config_named(config.key) == config
    for key, said in (("sm90:tile_n=96", "family 'sm90'"), ("sm90_wgmma:tile_n=7", "tile_n"), ("sm90_wgmma:x", "'x'")):
        with pytest.raises(SpaceError, match=said):
            config_named(key)
