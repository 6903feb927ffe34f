"""The pages of the recordings and the search say what lies on disk: sets, digests, columns, the model's own errors."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from space.devices import DEFAULT_DEVICE
from tests.pages import ROOT
from tuner.prediction.files import model_for

PAGE = (ROOT / "docs" / "recordings.md").read_text()
SETS = re.findall(
    r"^\| `recorded/(\w+)` \| ([\d-]+(?:, [\d-]+)?) \| (\d+)[^|]* \| (\d+(?: at most)?)[^|]* \| (.+?) \| (.+?) \|$",
    PAGE,
    re.MULTILINE,
)
POLICIES = {"burst", "chain", "rounds", "sustained"}


def test_the_table_of_sets_names_every_folder() -> None:
    assert {name for name, *_ in SETS} == {path.name for path in (ROOT / "recorded").iterdir()}


@pytest.mark.parametrize(("name", "days", "problems", "candidates", "screened", "finals"), SETS)
def test_a_set_holds_what_its_row_says(
    name: str, days: str, problems: str, candidates: str, screened: str, finals: str
) -> None:
    paths = sorted((ROOT / "recorded" / name).glob("*.parquet"))
    assert len(paths) == int(problems)
    taken = set[str]()
    # One of eight: reading all takes seconds.
    for path in paths[::8]:
        rows = pq.read_table(path, columns=["stage", "policy", "taken_at", "family"]).to_pylist()
        taken |= {str(row["taken_at"].date()) for row in rows}
        ours = [row for row in rows if row["stage"] == "screen" and row["family"] != "cublaslt"]
        most = int(candidates.removesuffix(" at most"))
        assert len(ours) == most or (candidates.endswith("most") and len(ours) < most), path.name
        assert under(rows, "screen") == set(re.findall("`(.+?)`", screened))
        named = set(re.findall("`(.+?)`", finals)) or (set() if finals == "none" else POLICIES)
        assert under(rows, "final") - {"chain_pdl"} == named, path.name
    assert taken == set(days.split(", "))


def under(rows: list[dict[str, Any]], stage: str) -> set[str]:
    """Policies of a stage; `rounds` by its new name."""
    return {row["policy"].replace("cold_graph", "rounds") for row in rows if row["stage"] == stage}


def test_the_digests_of_the_page_are_those_of_the_files() -> None:
    paths = (ROOT / "recorded").glob("*/*.parquet")
    abouts = [json.loads(pq.read_schema(path).metadata[b"gemmtune"]) for path in paths]
    kept = {provenance["kernel_source_digest"][:12] for about in abouts for provenance in about["provenance"]}
    assert set(re.findall(r"`([0-9a-f]{12})`", PAGE)) == kept


def test_the_page_lists_every_column() -> None:
    told = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE.partition("One row is")[2], re.MULTILINE)))
    (path, *_) = sorted((ROOT / "recorded" / SETS[-1][0]).glob("*.parquet"))
    assert told == pq.read_schema(path).names


def test_pages_count_what_the_shipped_model_learned_from() -> None:
    model = model_for(DEFAULT_DEVICE).model
    assert model is not None
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    told = re.findall(r"learned from (?:([\d,]+) candidates of )?(\d+) problems", "".join(map(Path.read_text, pages)))
    assert len(told) >= 2
    problems, candidates = str(len(model.facts.problems)), f"{model.facts.candidates:,}"
    assert set(told) <= {("", problems), (candidates, problems)}


def test_the_search_page_has_the_shipped_models_own_errors() -> None:
    model = model_for(DEFAULT_DEVICE).model
    assert model is not None
    page = " ".join((ROOT / "docs" / "search.md").read_text().split())
    assert f"reaches {model.facts.held_out_share:.3f} of the best on held-out problems, " in page
    assert f"at least {model.facts.held_out_worst:.3f}." in page
    for policy, (low, middle, high) in model.facts.served.items():
        shown = [str(round(100 * math.expm1(share))).replace("-", "−") for share in (low, middle, high)]
        sentence = rf"{shown[1]} % under `{policy}`[^()`]* \((90 %: )?{shown[0]} to {shown[2]} %\)"
        assert re.search(sentence, page), (policy, shown)
