"""Cards: names that find them, a source for every figure, and figures that agree with each other."""

from __future__ import annotations

import pytest

from space.cards import CARDS, HALF_SUMS, TENSOR_SHARE
from space.devices import DriverFacts, card_of, identity_named, identity_of, known_names, profile_from, profile_named
from space.errors import ProfileError

#: Names that drivers report, with the compile target and multiprocessors of each card.
DRIVER_NAMES = {
    "NVIDIA H100 80GB HBM3": ("sm_90a", 132),
    "NVIDIA H100 PCIe": ("sm_90a", 114),
    "NVIDIA H100 NVL": ("sm_90a", 132),
    "NVIDIA H200": ("sm_90a", 132),
    "NVIDIA H200 NVL": ("sm_90a", 132),
    "NVIDIA H20": ("sm_90a", 78),
    "NVIDIA GH200 480GB": ("sm_90a", 132),
    "NVIDIA GH200 144G HBM3e": ("sm_90a", 132),
    "NVIDIA A100-SXM4-40GB": ("sm_80", 108),
    "NVIDIA A100-SXM4-80GB": ("sm_80", 108),
    "NVIDIA A100-PCIE-40GB": ("sm_80", 108),
    "NVIDIA A100 80GB PCIe": ("sm_80", 108),
    "NVIDIA A30": ("sm_80", 56),
    "NVIDIA A10": ("sm_86", 72),
    "NVIDIA GeForce RTX 3090": ("sm_86", 82),
    "Orin": ("sm_87", 16),
    "NVIDIA L4": ("sm_89", 58),
    "NVIDIA L40S": ("sm_89", 142),
    "NVIDIA GeForce RTX 4090": ("sm_89", 128),
    "NVIDIA B200": ("sm_100a", 148),
    "NVIDIA B300 SXM6 AC": ("sm_103a", 148),
    "NVIDIA GeForce RTX 5090": ("sm_120a", 170),
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": ("sm_120a", 188),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": ("sm_120a", 188),
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": ("sm_120a", 188),
    "NVIDIA GB10": ("sm_121a", 48),
}

PEOPLES_NAMES = {
    "H100 SXM": "NVIDIA H100 80GB HBM3",
    "h100 sxm5": "NVIDIA H100 80GB HBM3",
    "H200 SXM": "NVIDIA H200",
    "nvidia_h200": "NVIDIA H200",
    "GH200 96GB": "NVIDIA GH200 480GB",
    "GH200 144GB": "NVIDIA GH200 144G HBM3e",
    "A100 40GB SXM": "NVIDIA A100-SXM4-40GB",
    "A100 80GB SXM": "NVIDIA A100-SXM4-80GB",
    "A100 PCIe 40GB": "NVIDIA A100-PCIE-40GB",
    "rtx 4090": "NVIDIA GeForce RTX 4090",
    "GeForce RTX 5090": "NVIDIA GeForce RTX 5090",
    "B300": "NVIDIA B300 SXM6 AC",
    "PRO 6000": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    "PRO 6000 Server": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "RTX PRO 6000 Max-Q": "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    "DGX Spark": "NVIDIA GB10",
}

#: Dense bf16 FLOP a multiprocessor and clock with f32 sums, by arch (architecture whitepapers).
BF16_FLOP_PER_CLOCK = {"sm_80": 2_048, "sm_86": 1_024, "sm_87": 2_048, "sm_89": 1_024, "sm_90a": 4_096,
                       "sm_100a": 8_192, "sm_103a": 8_192, "sm_120a": 1_024, "sm_121a": 1_024}  # fmt: skip


def folded(name: str) -> str:
    return " ".join(name.lower().replace("_", " ").split())


def test_the_table_has_these_cards() -> None:
    assert {name: (card.arch, card.sm_count) for name, card in CARDS.items()} == DRIVER_NAMES
    assert set(known_names()) == set(DRIVER_NAMES)


@pytest.mark.parametrize("name", CARDS)
def test_a_card_is_found_by_its_name_and_aliases(name: str) -> None:
    short = name.removeprefix("NVIDIA ").removeprefix("GeForce ")
    for each in (name, name.upper(), short, short.lower(), *CARDS[name].aliases):
        assert profile_named(each).name == name


@pytest.mark.parametrize("name", PEOPLES_NAMES)
def test_names_that_people_use(name: str) -> None:
    assert profile_named(name).name == PEOPLES_NAMES[name]


def test_no_name_stands_for_two_cards() -> None:
    short = {name: name.removeprefix("NVIDIA ").removeprefix("GeForce ") for name in CARDS}
    names = [folded(each) for name, card in CARDS.items() for each in {short[name], *card.aliases}]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["H200 MIG", "Tesla T4", "H2000"])
def test_unknown_names_are_refused_with_the_nearest_ones(name: str) -> None:
    with pytest.raises(ProfileError, match="NVIDIA ") as refused:
        profile_named(name)
    assert repr(name) in str(refused.value)


@pytest.mark.parametrize(
    ("name", "cards"),
    [
        ("H100", "h100 sxm, h100 pcie, h100 nvl"),
        ("nvidia h100", "h100 sxm, h100 pcie, h100 nvl"),
        ("A100", "a100 40gb sxm, a100 80gb sxm, a100 40gb pcie, a100 pcie 80gb"),
        ("A100 80GB", "a100 80gb sxm, a100 80gb pcie"),
        ("GH200", "gh200 96gb, gh200 144gb"),
    ],
)
def test_a_name_of_several_cards_is_refused_with_a_name_of_each(name: str, cards: str) -> None:
    with pytest.raises(ProfileError) as refused:
        profile_named(name)
    assert str(refused.value) == f"device {name!r} names several cards: write one of {cards}"
    assert len({profile_named(card).name for card in cards.split(", ")}) == cards.count(",") + 1


def test_names_that_share_a_prefix_are_different_cards() -> None:
    profiles = [profile_named(name) for name in ("H200", "H200 NVL", "H20", "GH200 96GB")]
    assert len({profile.name for profile in profiles}) == len(profiles)
    assert len({(profile.power_w, profile.memory_bytes, profile.memory_tbs) for profile in profiles}) == len(profiles)


@pytest.mark.parametrize("name", CARDS)
def test_every_figure_has_a_source(name: str) -> None:
    card = CARDS[name]
    figures = {"sm_count", "l2_bytes", "memory_bytes", "memory_tbs", "boost_ghz", "power_w", "tensor_tflops"}
    assert set(card.sources) == figures
    assert all(len(source) > 5 for source in card.sources.values())


@pytest.mark.parametrize("name", CARDS)
def test_dtypes_are_those_of_the_tensor_cores(name: str) -> None:
    card = CARDS[name]
    fp8 = set() if card.arch in ("sm_80", "sm_86", "sm_87") else {"fp8_e4m3", "fp8_e5m2"}
    halved = {"fp16"} | (fp8 if card.arch == "sm_89" else set())
    half_sums = {f"{dtype}{HALF_SUMS}" for dtype in halved} if "GeForce" in name else set()
    assert set(card.tensor_tflops) == {"bf16", "fp16", "tf32", "int8"} | fp8 | half_sums
    assert {dtype.removesuffix(HALF_SUMS) for dtype in card.tensor_tflops} <= set(TENSOR_SHARE)


@pytest.mark.parametrize("name", CARDS)
def test_f16_sums_are_twice_as_fast_on_geforce_and_as_fast_elsewhere(name: str) -> None:
    profile, faster = profile_named(name), 2 if "GeForce" in name else 1
    for dtype in {"fp16", "fp8_e4m3", "fp8_e5m2"} & set(profile.tensor_tflops):
        # On sm_120 the rate of fp8 is that of block-scaled products, which GeForce does not halve.
        own = 1 if dtype != "fp16" and profile.arch.name == "sm_120a" else faster
        assert profile.peak_tflops(f"{dtype}_acc16") == pytest.approx(own * profile.peak_tflops(dtype))
        assert profile.peak_tflops(f"{dtype},{dtype},bf16,fp16") == profile.peak_tflops(f"{dtype}_acc16")


@pytest.mark.parametrize("name", CARDS)
def test_rates_are_in_the_ratios_of_the_tensor_cores(name: str) -> None:
    rates = CARDS[name].tensor_tflops
    bf16 = rates["bf16"]
    assert rates["fp16"] == bf16
    assert rates["tf32"] == pytest.approx(bf16 / 2, rel=0.05)
    if "fp8_e4m3" in rates:
        ratio = 4 if name == "NVIDIA GeForce RTX 5090" else 2  # block-scaled products are not halved
        assert rates["fp8_e4m3"] == rates["fp8_e5m2"] == pytest.approx(ratio * bf16, rel=0.05)
    # s32 sums are not halved on GeForce, and Blackwell Ultra gave its int8 units away.
    int8 = 4 if "GeForce" in name else 1 / 15 if "B300" in name else 2
    assert rates["int8"] == pytest.approx(int8 * bf16, rel=0.05)


@pytest.mark.parametrize("name", CARDS)
def test_bf16_rate_follows_from_multiprocessors_and_a_clock_within_the_boost_clock(name: str) -> None:
    card = CARDS[name]
    per_clock = BF16_FLOP_PER_CLOCK[card.arch] / (2 if "GeForce" in name else 4 if name == "NVIDIA H20" else 1)
    clock_ghz = card.tensor_tflops["bf16"] * 1e3 / (card.sm_count * per_clock)
    assert 0.75 * card.boost_ghz < clock_ghz <= 1.01 * card.boost_ghz


def test_cards_of_one_arch_differ_as_they_are_sold() -> None:
    def tbs(name: str) -> float:
        return profile_named(name).memory_tbs

    assert tbs("H100 PCIe") < tbs("H100 SXM") < tbs("H100 NVL") < tbs("H20") < tbs("H200") < tbs("B200")
    assert tbs("A100 40GB SXM") == tbs("A100 40GB PCIe") < tbs("A100 80GB PCIe") < tbs("A100 80GB SXM")
    assert tbs("GB10") < tbs("L4") < tbs("L40S") < tbs("RTX 4090") < tbs("RTX 5090")
    assert tbs("PRO 6000 Server") < tbs("PRO 6000") == tbs("PRO 6000 Max-Q") == tbs("RTX 5090")


@pytest.mark.parametrize("name", CARDS)
def test_magnitudes_are_those_of_a_gpu(name: str) -> None:
    card, profile = CARDS[name], profile_named(name)
    assert 4 * 2**20 <= card.l2_bytes < 2**28
    assert 24 * 2**30 <= card.memory_bytes <= 288 * 2**30
    assert 0.2 < card.memory_tbs < 9
    assert 1.3 <= card.boost_ghz < 3
    assert 60 <= card.power_w <= 1_200
    # HBM feeds at most 70 bytes a clock and multiprocessor, and L2 is faster than memory.
    assert card.memory_tbs * 1e3 / (card.sm_count * card.boost_ghz) < 70
    assert profile.hbm_tbs < profile.hbm_read_tbs < profile.memory_tbs < profile.l2_tbs


def test_an_h200_is_what_its_driver_reports() -> None:
    profile = profile_named("H200")
    assert (profile.sm_count, profile.l2_bytes, profile.highest_clock_ghz) == (132, 60 * 2**20, 1.98)
    assert profile.measured
    assert profile.compute_capability == (9, 0)


@pytest.mark.parametrize(
    ("identity", "sm_count"),
    [("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16), ("NVIDIA H100 80GB HBM3 MIG 2g.20gb", 32),
     ("NVIDIA H200 MIG 1g.18gb", 16), ("NVIDIA GH200 144G HBM3e MIG 2g.36gb", 32)],
)  # fmt: skip
def test_a_mig_slice_is_a_part_of_its_card(identity: str, sm_count: int) -> None:
    part, card = profile_named(identity), profile_named(identity.split(" MIG ")[0])
    assert part.name == identity
    assert part.sm_count == sm_count
    assert part.memory_bytes < card.memory_bytes / 3
    assert part.peak_tflops("bf16") < card.peak_tflops("bf16") / 3
    assert card_of(identity) == card_of(f"{identity} (300 W)") == card.name
    held = part.memory_bytes / card.memory_bytes
    assert part.l2_bytes == int(card.l2_bytes * held)
    assert (part.memory_tbs, part.hbm_tbs, part.hbm_read_tbs) == pytest.approx(
        (card.memory_tbs * held, card.hbm_tbs * held, card.hbm_read_tbs * held))  # fmt: skip


def test_a_slice_is_never_more_than_its_card() -> None:
    card, part = profile_named("NVIDIA H20"), profile_named("NVIDIA H20 MIG 7g.999gb")
    assert (part.sm_count, part.l2_bytes, part.hbm_tbs) == (card.sm_count, card.l2_bytes, card.hbm_tbs)


def test_a_power_cap_makes_another_device() -> None:
    card, capped = profile_named("NVIDIA H200"), profile_named("NVIDIA H200 (500 W)")
    assert (capped.name, capped.power_w, capped.sm_count) == ("NVIDIA H200 (500 W)", 500, 132)
    assert capped.clock_ghz < card.clock_ghz
    assert capped.peak_tflops("bf16") < card.peak_tflops("bf16")
    facts = DriverFacts("NVIDIA H200", "sm_90a", sm_count=132, power_w=500, default_power_w=700)
    assert identity_of(facts) == capped.name
    assert capped.l2_tbs == card.l2_tbs


def test_a_limit_above_the_default_promises_no_more() -> None:
    card, raised = profile_named("NVIDIA GH200 480GB"), profile_named("NVIDIA GH200 480GB (850 W)")
    assert (raised.clock_ghz, raised.peak_tflops("bf16")) == (card.clock_ghz, card.peak_tflops("bf16"))


@pytest.mark.parametrize(("power_w", "name"), [(679, "NVIDIA H200"), (678, "NVIDIA H200 (678 W)")])
def test_a_limit_near_the_default_is_no_other_device(power_w: float, name: str) -> None:
    assert identity_of(DriverFacts("NVIDIA H200", "sm_90a", power_w=power_w, default_power_w=700)) == name


def test_a_variant_of_an_alias_has_the_identity_of_the_card() -> None:
    assert identity_named("h200 (500 W)") == "NVIDIA H200 (500 W)"
    assert identity_named("h200 MIG 1g.18gb") == "NVIDIA H200 MIG 1g.18gb"
    assert identity_named("a card of tomorrow") == "a card of tomorrow"


@pytest.mark.parametrize("name", ["H200 (0 W)", "H200 (0 SMs)", "H200 (99999 SMs)", "H200 MIG 1g.0gb"])
def test_an_impossible_variant_is_unknown(name: str) -> None:
    with pytest.raises(ProfileError, match="is unknown"):
        profile_named(name)


def test_fewer_multiprocessors_make_another_device() -> None:
    card, partial = profile_named("NVIDIA H100 PCIe"), profile_named("NVIDIA H100 PCIe (100 SMs)")
    assert (partial.name, partial.sm_count) == ("NVIDIA H100 PCIe (100 SMs)", 100)
    assert partial.peak_tflops("bf16") == pytest.approx(card.peak_tflops("bf16") * 100 / 114)
    assert identity_of(DriverFacts("NVIDIA H100 PCIe", "sm_90a", sm_count=100)) == partial.name
    assert identity_of(DriverFacts("NVIDIA H100 PCIe", "sm_90a", sm_count=132)) == "NVIDIA H100 PCIe (132 SMs)"


def test_the_driver_s_multiprocessors_are_those_of_a_slice() -> None:
    """The table's count is of SXM cards; rates and clusters follow the count that the driver reports."""
    named = profile_named("NVIDIA H100 PCIe MIG 1g.10gb")
    profile = profile_from(DriverFacts(named.name, "sm_90a", sm_count=14))
    assert (profile.name, profile.sm_count, profile.resident_clusters) == (named.name, 14, {1: 14, 2: 7, 4: 3})
    assert profile.peak_tflops("bf16") == pytest.approx(named.peak_tflops("bf16") * 14 / 16)
    assert {profile.sources[field] for field in ("arch", "sm_count")} == {"driver"}


@pytest.mark.parametrize("name", CARDS)
def test_a_card_at_its_defaults_keeps_its_name(name: str) -> None:
    card = CARDS[name]
    facts = DriverFacts(name, card.arch, sm_count=card.sm_count, power_w=card.power_w, default_power_w=card.power_w)
    assert identity_of(facts) == name


@pytest.mark.parametrize(
    ("spelled", "identity"),
    [("h200 (500 w)", "NVIDIA H200 (500 W)"), ("H200 SXM (120 SMs)", "NVIDIA H200 (120 SMs)"),
     ("h200 MIG 1g.18gb", "NVIDIA H200 MIG 1g.18gb"),
     ("H200 (120 SMs) (500 W)", "NVIDIA H200 (120 SMs) (500 W)"),
     ("NVIDIA H200 MIG 1G.18GB (500 W)", "NVIDIA H200 MIG 1g.18gb (500 W)")],
)  # fmt: skip
def test_every_spelling_of_a_part_of_a_card_has_one_identity(spelled: str, identity: str) -> None:
    assert profile_named(spelled).name == identity
    assert profile_named(spelled) is profile_named(identity)


@pytest.mark.parametrize(
    "suffix", ["(0 W)", "(0 SMs)", "(9000 SMs)", f"({'9' * 5_000} SMs)", "MIG 1g.0gb", "(5 W) (5 W)"]
)
def test_parts_that_no_card_has_are_refused(suffix: str) -> None:
    with pytest.raises(ProfileError, match="NVIDIA H200"):
        profile_named(f"NVIDIA H200 {suffix}")


def test_a_capped_card_with_fewer_multiprocessors_is_both() -> None:
    facts = DriverFacts("NVIDIA H200", "sm_90a", sm_count=120, power_w=500, default_power_w=700)
    assert identity_of(facts) == "NVIDIA H200 (120 SMs) (500 W)"
    assert profile_from(facts).peak_tflops("bf16") < profile_named("NVIDIA H200 (120 SMs)").peak_tflops("bf16")


def test_a_card_that_the_table_lacks_has_no_document_of_another() -> None:
    profile = profile_from(DriverFacts("NVIDIA H800", "sm_90a", sm_count=132))
    assert profile.sources["sm_count"] == "driver"
    assert profile.sources["l2_bytes"] == "estimated: as NVIDIA H200"


def test_a_card_that_the_table_lacks_runs_within_its_own_clock_and_memory() -> None:
    """Half the multiprocessors at half the clock: a quarter of the rates; and half of the memory's."""
    orin = profile_named("Orin")
    small = profile_from(DriverFacts("Orin Nano", "sm_87", sm_count=8, highest_clock_ghz=0.65, memory_tbs=0.1024))
    assert small.peak_tflops("bf16") == pytest.approx(orin.peak_tflops("bf16") / 4)
    assert small.l2_tbs == pytest.approx(orin.l2_tbs / 4)
    assert small.clock_ghz == pytest.approx(orin.clock_ghz / 2)
    assert small.clock_ghz < small.highest_clock_ghz
    assert (small.hbm_tbs, small.hbm_read_tbs) == pytest.approx((orin.hbm_tbs / 2, orin.hbm_read_tbs / 2))
    silent = profile_from(DriverFacts("Orin Nano", "sm_87", sm_count=8))
    assert (silent.clock_ghz, silent.peak_tflops("bf16")) == (orin.clock_ghz, orin.peak_tflops("bf16") / 2)
    assert silent.hbm_tbs == orin.hbm_tbs / 2
