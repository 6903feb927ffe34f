"""A published table begins with the facts that let anyone print it again; without them nothing is written."""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import facts, published
from benchmarks.published import FIELDS, Unpublishable, add_out, facts_of, joined_facts, publish, shared_facts
from space.family import family_named
from tuner.settings import Settings
from workers.kernels.source import source_of_family

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Git]:
    """A repository with one commit, taken for this project's, and git in it."""

    def run(*words: str) -> str:
        person = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        command = ["git", "-C", str(tmp_path), *person, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "RESULTS", tmp_path / "benchmarks" / "results")
    monkeypatch.setattr(facts, "settings", lambda: Settings(model_dir=tmp_path / "models"))
    monkeypatch.setattr(sys, "argv", ["anything", "--shape", "two words"])
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "recorded").mkdir()
    (tmp_path / "recorded" / "one").write_text("one")
    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "--message", "all")
    published._commit_at_start.cache_clear()
    yield run
    published._commit_at_start.cache_clear()


def test_paragraphs_stand_under_the_facts(git: Git, tmp_path: Path) -> None:
    out = tmp_path / "benchmarks" / "results" / "table.md"
    publish("search.stopping", out, "about", "| a |\n| b |", read=[tmp_path / "list.json", tmp_path / "recorded"])
    written = out.read_text()
    found = facts_of(written)
    assert tuple(found)[: len(FIELDS)] == FIELDS
    assert found["command"] == "`python -m benchmarks.search.stopping --shape 'two words'`"
    assert found["commit"] == f"`{git('rev-parse', 'HEAD')}`"
    whole = hashlib.sha256(f"{hashlib.sha256(b'one').hexdigest()}  one\n".encode()).hexdigest()
    assert found["data"] == f"`list.json` `{hashlib.sha256(b'[1]').hexdigest()[:12]}`, `recorded` `{whole[:12]}`"
    assert written.endswith("\n\nabout\n\n| a |\n| b |\n")


def test_other_results_may_have_changed(git: Git, tmp_path: Path) -> None:
    out = tmp_path / "benchmarks" / "results" / "table.md"
    publish("storm", out, "first")
    publish("storm", out, "second")
    assert "second" in out.read_text()


def test_nothing_is_written_without_a_file(git: Git, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[2]")
    publish("storm", None, "nowhere")
    assert git("status", "--porcelain") == "M list.json"


@pytest.mark.parametrize("name", ["list.json", "new.py"])
def test_a_dirty_tree_is_refused_before_and_after_measuring(
    git: Git, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("changed")
    options = argparse.ArgumentParser()
    add_out(options)
    with pytest.raises(SystemExit):
        options.parse_args(["--out", "table.md"])
    assert f"the tree differs from its commit ({name}): commit or stash it" in capsys.readouterr().err
    with pytest.raises(Unpublishable, match=name):
        publish("storm", tmp_path / "table.md", "text")
    assert not (tmp_path / "table.md").exists()


def test_a_commit_in_the_middle_of_a_run_is_refused(git: Git, tmp_path: Path) -> None:
    out = tmp_path / "benchmarks" / "results" / "table.md"
    publish("storm", out, "first")
    git("add", ".")
    git("commit", "--quiet", "--message", "more")
    with pytest.raises(Unpublishable, match="changed since this command began"):
        publish("storm", out, "second")


def test_an_input_that_git_does_not_track_is_refused(git: Git, tmp_path: Path) -> None:
    (tmp_path / ".git" / "info" / "exclude").write_text("*.db\n")
    (tmp_path / "own.db").write_text("")
    out = tmp_path / "table.md"
    for path in (tmp_path / "own.db", tmp_path.parent / "elsewhere.json", Path("/proc/cpuinfo")):
        with pytest.raises(Unpublishable, match=f"{path} is not tracked in {tmp_path}: commit what"):
            publish("storm", out, "text", read=[path])
    assert not out.exists()


def test_a_copy_without_git_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "ROOT", tmp_path)
    with pytest.raises(Unpublishable, match="is not the root of a git checkout: publish from a clone"):
        published.clean_commit()


def test_a_model_trained_here_is_refused(git: Git, tmp_path: Path) -> None:
    (tmp_path / ".git" / "info" / "exclude").write_text("models/\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "nvidia_h200.npz").write_text("")
    with pytest.raises(SystemExit, match=r"nvidia_h200\.npz was trained here and is used in place of"):
        publish("storm", tmp_path / "benchmarks" / "results" / "table.md", "text")


def facts_at_head() -> dict[str, str]:
    published._commit_at_start.cache_clear()
    return facts_of(published.facts_table("deployed"))


@pytest.mark.parametrize("list_too", [True, False])
def test_a_joined_table_names_the_command_that_prints_it_again_and_its_files(
    git: Git, tmp_path: Path, list_too: bool
) -> None:
    paths = [tmp_path / "list.json"] * list_too
    runs = [facts_of(published.facts_table("deployed", paths)) | {"command": f"`{name}`"} for name in "ab"]
    joined = joined_facts("deployed", runs, [tmp_path / "recorded" / "one"])
    assert joined is not None
    assert joined["command"] == "`python -m benchmarks.deployed --shape 'two words'`"
    held = {"list.json": b"[1]", "recorded/one": b"one"}
    files = [f"`{path}` `{hashlib.sha256(content).hexdigest()[:12]}`" for path, content in held.items()]
    assert joined["data"] == ", ".join(files[not list_too :])
    assert tuple(joined) == tuple(runs[0])
    with pytest.raises(Unpublishable, match=r"part\.json is not tracked"):
        joined_facts("deployed", runs, [tmp_path / "part.json"])
    assert joined_facts("deployed", [runs[0], runs[1] | {"driver": "9"}], []) is None


def test_parts_of_commits_with_one_program_share_a_table(git: Git, tmp_path: Path) -> None:
    (tmp_path / "tuner").mkdir()
    (tmp_path / "docs").mkdir()
    taken = []
    for path in ("tuner/study.py", "docs/use.md", "benchmarks/results/F.md", "tuner/new.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
        git("add", ".")
        git("commit", "--quiet", "--message", path)
        taken.append(facts_at_head())
    shared = shared_facts([*taken[:3], taken[0]])
    assert shared is not None
    assert shared["commit"] == ", ".join(one["commit"] for one in taken[:3])
    assert shared["command"] == taken[0]["command"]
    assert shared_facts([taken[2], taken[3]]) is None
    # Parts from before the digest was a fact are of one table only at one commit.
    old = [{name: value for name, value in one.items() if name != "program"} for one in taken]
    assert shared_facts([old[0], old[1]]) is None
    assert shared_facts([old[0], old[0]]) == old[0]
    assert shared_facts([old[0], taken[1]]) is None


def test_every_part_of_the_program_is_in_its_digest(git: Git, tmp_path: Path) -> None:
    seen = {facts_at_head()["program"]}
    for path in ("benchmarks/a.py", "gemmtune/a.py", "space/a.py", "tuner/a.py", "workers/a.py", "pyproject.toml"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
        git("add", ".")
        git("commit", "--quiet", "--message", path)
        program = facts_at_head()["program"]
        assert program not in seen
        seen.add(program)


def test_a_folder_has_one_digest_whatever_an_interpreter_leaves_in_it(tmp_path: Path) -> None:
    for name in ("b", "a", "c/d"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    lines = "".join(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in ("a", "b", "c/d"))
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("compiled")
    assert facts.digest_of(tmp_path) == hashlib.sha256(lines.encode()).hexdigest()


def test_a_replay_reads_its_recordings_and_a_gpu_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "settings", lambda: Settings(recorded_dir=tmp_path))
    assert facts.recordings("recorded:h200") == facts.recordings("recorded:h200:0") == [tmp_path / "h200"]
    assert facts.recordings("cuda:0") == []


def test_a_list_may_be_given_by_a_relative_path(git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.json").write_text("[]")
    assert facts.data(tmp_path.resolve(), [Path("list.json")]).startswith("`list.json` `")


def test_parts_of_several_programs_share_a_table_if_their_kernels_have_one_machine_code() -> None:
    source = source_of_family(family_named("sm90_wgmma"))
    today = {"command": "`a`", "commit": "`1`", "kernels": facts.kernels(), "program": "`p`", "machine": "m"}
    earlier = today | {"kernels": facts.kernels().replace(source.digest[:12], source.alike[0][:12]), "program": "`q`"}
    shared = shared_facts([earlier, today, earlier], programs=True)
    assert shared is not None
    assert shared["kernels"] == f"{earlier['kernels']}, sm90_wgmma `{source.digest[:12]}`"
    assert shared_facts([today, today | {"program": "`q`"}], programs=True) == today | {"program": "`p`, `q`"}
    assert shared_facts([earlier, today]) is None
    assert shared_facts([today, today | {"kernels": "sm90_wgmma `eeeeeeeeeeee`"}], programs=True) is None
