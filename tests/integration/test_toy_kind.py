"""The seam of problem kinds: a kind that only `tests/toy_kind` knows, from keys to the service, the store and back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from gemmtune.command import app
from space.errors import FamilyError, ProblemError
from space.explain import explain
from space.family import families_for
from space.kind import problem_from_key, problem_of
from space.kinds.gemm import Gemm
from tests import toy_kind
from tests.support import FACTS, FAMILY, PROBLEM, PROVENANCE, keep_best, measured
from tests.toy_kind import ScaledGemm
from tuner.answering.answers import answer
from tuner.evidence.backup import restore_backup
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignBudget, CampaignRequest
from tuner.hints import tune_command
from tuner.tables.importers import shapes_of
from tuner.tables.problems import ladder
from workers.errors import RecordingError
from workers.recording import read_recording, write_recording

ASKED = ScaledGemm(64, 128, 256, "per_row")
UNSERVED = "no kernel family takes scaled_gemm problems: families take gemm"
H200 = "NVIDIA H200"


@pytest.fixture(autouse=True)
def joined() -> Iterator[None]:
    toy_kind.join()
    yield
    toy_kind.leave()


def test_its_key_and_its_fields_name_the_problem() -> None:
    assert ASKED.key == "scaled_gemm:fp8_e4m3:64x128x256:per_row"
    assert problem_from_key(ASKED.key) == problem_of({"kind": "scaled_gemm"} | ASKED.fields()) == ASKED
    assert (ASKED.document()["kind"], PROBLEM.document()["kind"]) == ("scaled_gemm", "gemm")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "scaled_gem"}, "problem kind 'scaled_gem' is unknown: did you mean scaled_gemm"),
        ({"kind": "scaled_gemm"}, "a scaled_gemm problem needs scale"),
        ({"kind": "scaled_gemm", "scale": "none"}, "use one of per_tensor, per_row"),
        ({"kind": "scaled_gemm", "scale": "per_row", "layout": "nt"},
         "'layout' is not a field of a scaled_gemm problem"),
        ({"scale": "per_row"}, "'scale' is not a field of a gemm problem: it has m, n, k, dtype"),
        ({"kind": "scaled_gemm", "scales": "per_row"}, "'scales' .* did you mean scale"),
        ({"m": "64"}, "m = '64' is not a whole number: write digits alone, as in 64 .Rows of A and C."),
        ({"layout": 1}, "layout = 1 is not text: quote it"),
    ],
)
def test_what_is_no_problem_of_a_kind_is_one_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        problem_of({"m": 64, "n": 128, "k": 256} | given)


def test_no_family_takes_it_and_every_place_says_so(tmp_path: Path) -> None:
    with pytest.raises(FamilyError, match=UNSERVED):
        families_for("sm_90a", ASKED)
    with pytest.raises(FamilyError, match="family sm90_wgmma does not take scaled_gemm problems: it takes gemm"):
        explain(FAMILY, ASKED, FAMILY.config({}))
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        found = answer(store, ASKED, H200)
        assert (found.source, found.config) == ("none", None)
        assert UNSERVED in found.why
        request = CampaignRequest("scaled", (ASKED, PROBLEM), ((H200, "cuda"),), CampaignBudget(), 0)
        with pytest.raises(FamilyError, match=UNSERVED):
            Campaigns(store).create(request)
        assert store.counts()["campaign"] == 0


def test_the_command_line_spells_it(tmp_path: Path) -> None:
    def said(*words: str) -> str:
        return CliRunner().invoke(app, words, env={"COLUMNS": "300"}, catch_exceptions=False).stdout

    assert "What one scale factor is of. One of per_tensor, per_row. For scaled_gemm alone." in said("best", "--help")
    db = f"sqlite:///{tmp_path}/s.db"
    Store.open(db).close()
    words = (ASKED.shape, "--kind", "scaled_gemm", "--scale", "per_row", "--db", db)
    found = json.loads(said("best", *words, "--json"))
    assert (found["source"], found["problem"]) == ("none", ASKED.document())
    assert "no kernel family takes scaled_gemm problems" in said("best", *words)
    assert tune_command(ASKED) == "gemmtune tune 64x128x256 --kind scaled_gemm --scale per_row"
    with pytest.raises(ProblemError, match="'scale' is not a field of a gemm problem"):
        said("best", ASKED.shape, "--scale", "per_row", "--db", db)
    with pytest.raises(FamilyError, match=UNSERVED):
        said("explain", ASKED.shape, "--kind", "scaled_gemm", "--scale", "per_row")
    rungs = json.loads(said("ladder", "128x256", *words[1:], "--m", "1,2", "--json"))["rungs"]
    assert [rung["source"] for rung in rungs] == ["none", "none"]


def test_the_service_spells_it(database_url: str) -> None:
    with Store.open(database_url) as store:
        keep_best(store)
    body = {"m": 64, "n": 128, "k": 256, "kind": "scaled_gemm", "scale": "per_row"}
    questions: list[tuple[str, str, object]] = [
        ("GET", "/v1/best?m=64&n=128&k=256&kind=scaled_gemm&scale=per_row&device=NVIDIA+H200", None),
        ("GET", "/v1/best?m=64&n=128&k=256&scale=per_row", None),
        ("GET", "/v1/best?m=64&n=128&k=256&kind=scaled_gem", None),
        ("POST", "/v1/best:batch", {"problems": [body, {"m": 256, "n": 256, "k": 256}]}),
        ("POST", "/v1/explain", {"problem": body}),
        ("POST", "/v1/campaigns", {"name": "scaled", "problems": [body], "devices": [{"name": H200}]}),
        ("GET", "/openapi.json", None),
    ]
    asked = subprocess.run([sys.executable, "-m", "tests.toy_kind.asked", database_url], text=True, timeout=300,
                           input="\n".join(map(json.dumps, questions)), capture_output=True)  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    *answers, by_client = map(json.loads, asked.stdout.splitlines())
    best, wrong_field, wrong_kind, (_, batch), explained, campaign, (_, openapi) = answers
    assert (best[0], best[1]["source"], best[1]["problem"]) == (200, "none", ASKED.document())
    assert UNSERVED in best[1]["why"]
    assert by_client == best[1]
    assert (wrong_field[0], wrong_field[1]["type"]) == (422, "/problems/bad-input")
    assert "'scale' is not a field of a gemm problem" in wrong_field[1]["detail"]
    assert "'scaled_gem' is unknown: did you mean scaled_gemm" in wrong_kind[1]["detail"]
    assert [item["source"] for item in batch["items"]] == ["none", "measured"]
    assert [item["problem"]["kind"] for item in batch["items"]] == ["scaled_gemm", "gemm"]
    for refused in (explained, campaign):
        assert (refused[0], UNSERVED in refused[1]["detail"]) == (422, True)
    assert openapi["components"]["schemas"]["ProblemIn"]["properties"]["scale"]["description"].startswith("What one")


def test_lists_and_ladders_name_it_beside_other_kinds(tmp_path: Path) -> None:
    text = "kind,m,n,k,scale,dtype\nscaled_gemm,64,128,256,per_row,\n,64,128,256,,fp16\n"
    (tmp_path / "list.csv").write_text(text)
    (tmp_path / "list.json").write_text(json.dumps([{"kind": "scaled_gemm"} | ASKED.fields()]))
    assert list(shapes_of([tmp_path / "list.csv"]).counts) == [ASKED, Gemm.of(64, 128, 256, "fp16")]
    assert list(shapes_of([tmp_path / "list.json"]).counts) == [ASKED]
    found = ladder("kind=scaled_gemm m=64..128:x2 n=128 k=256 scale=per_row,per_tensor")
    assert (len(found), found[0]) == (4, ASKED)
    with pytest.raises(ProblemError, match=r"'layout=nt' .* any of scale, dtype"):
        ladder("kind=scaled_gemm m=64 n=128 k=256 scale=per_row layout=nt")


def test_its_row_a_backup_and_a_restore_keep_it(database_url: str, tmp_path: Path) -> None:
    with Store.open(database_url) as store:
        best = keep_best(store, ASKED)
        keep_best(store, ASKED.resized(128, 128, 256))
        keep_best(store, ScaledGemm(64, 128, 256, "per_tensor"))
        store.backup(tmp_path / "b.gz")
    restore_backup(tmp_path / "b.gz", f"sqlite:///{tmp_path}/restored.db")
    for url in (database_url, f"sqlite:///{tmp_path}/restored.db"):
        with Store.open(url) as store, store.transaction() as session:
            query = "SELECT kind, fields FROM problem WHERE key = :key"
            kind, fields = session.execute(sa.text(query), {"key": ASKED.key}).one()
            assert (kind, json.loads(fields) if isinstance(fields, str) else fields) == (ASKED.kind, ASKED.fields())
            assert store.best(ASKED, H200) == best
            assert [near.problem for near in store.neighbours(ASKED, H200)] == [ASKED.resized(128, 128, 256)]


def test_a_recording_keeps_it_and_one_of_an_unknown_kind_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "scaled.parquet"
    write_recording(path, ASKED, FACTS, [(measured(FAMILY.config({}), problem=ASKED), PROVENANCE)])
    assert json.loads(pq.read_schema(path).metadata[b"gemmtune"])["kind"] == "scaled_gemm"
    assert read_recording(path).problem == ASKED
    toy_kind.leave()
    with pytest.raises(RecordingError, match="problem kind 'scaled_gemm', this version knows gemm: upgrade gemmtune"):
        read_recording(path)


def test_an_old_recording_without_a_kind_is_of_a_gemm(tmp_path: Path) -> None:
    path, old = tmp_path / "new.parquet", tmp_path / "old.parquet"
    write_recording(path, PROBLEM, FACTS, [(measured(FAMILY.config({})), PROVENANCE)])
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"gemmtune"])
    assert about.pop("kind") == "gemm"
    pq.write_table(table.replace_schema_metadata({b"gemmtune": json.dumps(about)}), old)
    assert read_recording(old).problem == PROBLEM
