"""`gemmtune model …`: the model that ranks candidates and predicts unmeasured problems."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from space.family import families_for
from space.plug import Family
from tuner.cli.commands import group
from tuner.cli.options import AUTO, Db, DeviceName, Json, existing_store, planning_store
from tuner.cli.output import console, emit, notes
from tuner.counts import counted
from tuner.errors import ModelError
from tuner.files import check_exportable
from tuner.prediction import files
from tuner.prediction.examples import Group, from_recordings, from_store
from tuner.prediction.grow import scikit_learn
from tuner.prediction.learned import LearnedModel, limits_named
from tuner.prediction.train import train as train_model
from tuner.prediction.train import with_portfolio
from tuner.settings import settings

#: What is read, by `--from`.
_MATERIAL: Final = {"both": "the store and {}", "store": "the store", "recordings": "{}"}

app = group("The learned model of a GPU: train it, show it.")


@app.command()
def train(
    device: DeviceName = AUTO,
    source: Annotated[Literal["both", "store", "recordings"], typer.Option("--from", help="Training data.")] = "both",
    out: Annotated[Path | None, typer.Option(help="File to write. \\[default: in GEMMTUNE_MODEL_DIR]")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the trees' random choices.", min=0, max=2**32 - 1)] = 0,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Trains a GPU's model on all its measurements, and reports its accuracy on held-out problems.

    Recordings of GPUs with the same multiprocessors teach it too.
    Training needs scikit-learn (the extra `train`); using a model does not.
    """
    first, *others = families_for(limits_named(device).arch.name)
    path = out or settings().model_dir / files.file_name(device)
    # What fails at the end would fail after minutes, and without a store that is named the model would be another.
    scikit_learn("sklearn")
    if db is not None and source != "recordings":
        existing_store(db).close()
    check_exportable(path)
    if source != "store":
        notes.print("training on all recordings that ship takes about half an hour of two processors")
    model = _trained(first, device, source, seed, db)
    beside: list[LearnedModel] = []
    for family in others:
        try:
            beside.append(_trained(family, device, source, seed, db))
        except ModelError as error:
            notes.print(f"{family.name}: {error}")
    model = replace(model, beside=tuple(beside))
    size = files.save(model, path)
    if as_json:
        emit(_json(model) | {"file": str(path), "bytes": size})
        return
    notes.print(f"{path}: {size:,} bytes")
    _print(model)


def _trained(family: Family, device: str, source: str, seed: int, db: str | None) -> LearnedModel:
    """The model of one family, with its portfolio; says each step, for training takes minutes."""

    def told(step: str) -> None:
        notes.print(f"{family.name}: {step}")

    paths = sorted(settings().recorded_dir.glob("*/*.parquet")) if source != "store" else []
    told(f"reads {_MATERIAL[source].format(counted(len(paths), 'recording'))}")
    groups: list[Group] = []
    if source != "recordings":
        with planning_store(db) as store:
            groups += from_store(store, device, family)
    for folder in sorted({path.parent for path in paths}):
        groups += from_recordings(folder, family)
    model = train_model(groups, family, device, seed, told=told)
    told("chooses the configs of its portfolio")
    return with_portfolio(model, groups, family)


@app.command()
def show(
    device: DeviceName = AUTO,
    file: Annotated[Path | None, typer.Option(help="Model file. \\[default: the one in use]")] = None,
    as_json: Json = False,
) -> None:
    """Shows the model in use for a GPU, its training data, and its accuracy."""
    limits_named(device)  # refuses a name that no card has
    choice = files.model_for(device, settings().model_dir)
    if file is not None:
        model = files.load_for(file, device)
        choice = files.Choice(model, f"fits this version; learned from {len(model.facts.problems)} problems", file)
    if as_json:
        found = _json(choice.model) if choice.model else {}
        emit({"device": device, "why": choice.why, "file": str(choice.path) if choice.path else None} | found)
        return
    console.print(f"{device}: {choice.why}" + (f" ({choice.path})" if choice.path else ""))
    if choice.model:
        _print(choice.model)


def _json(model: LearnedModel) -> dict[str, Any]:
    facts = model.facts.model_dump(exclude={"probe_configs", "probe_us", "probe_problem", "portfolio"})
    return facts | ({"beside": [_json(each) for each in model.beside]} if model.beside else {})


def _print(model: LearnedModel) -> None:
    facts = model.facts
    console.print(f"{facts.family}")
    console.print(f"  {facts.candidates:,} candidates of {len(facts.problems)} problems, {model.forest.trees} trees, "
                  f"{len(facts.features)} features, {facts.trained_with}")  # fmt: skip
    console.print(
        f"  on held-out problems: its first choice reaches {facts.held_out_share:.3f} of the best measured "
        f"(geometric mean; least {facts.held_out_worst:.3f})"
    )
    differed = "differed from the prediction by"
    if not model.learned_here:
        differed = "may differ from the prediction twice as far as there, by"
    console.print(
        f"  their times {differed} {math.expm1(facts.low):+.0%} to {math.expm1(facts.high):+.0%} (90 %); "
        f"candidates of one problem scatter by {facts.doubt:.0%}"
    )
    for policy, (_, middle, _) in facts.served.items():
        console.print(f"  finals under {policy} differ from the screenings it predicts by {math.expm1(middle):+.0%}")
    console.print(f"  covers problems within {facts.reach:.1f} octaves of a training problem of the same kind")
    for each in model.beside:
        _print(each)
