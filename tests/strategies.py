"""Random configs and problems for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from space.config import Config
from space.kinds.gemm import DTYPES, LAYOUTS, Gemm
from space.plug import Family


def configs_of(family: Family) -> SearchStrategy[Config]:
    """Any config, legal or not."""
    return st.fixed_dictionaries({knob.name: st.sampled_from(knob.domain) for knob in family.knobs}).map(family.config)


def problems_up_to(m: int, n: int, k: int) -> SearchStrategy[Gemm]:
    """Of every dtype and layout, with and without a batch and an epilogue."""
    return st.builds(
        Gemm.of,
        st.integers(1, m), st.integers(1, n), st.integers(1, k),
        st.sampled_from(list(DTYPES)), st.sampled_from(LAYOUTS), st.sampled_from([1, 3]),
        st.sampled_from(["none", "alpha+beta", "bias+gelu"]),
    )  # fmt: skip
