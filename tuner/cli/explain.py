"""`gemmtune explain` and `gemmtune space`: the legal configs of a problem, and the rules behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from space.config import parse_knobs
from space.enumerate import Space, enumerate_all
from space.explain import Explanation, config_asked
from space.explain import explain as explain_config
from space.family import family_named, family_with
from space.nearest import MAX_CHANGES
from space.plug import Family
from space.problem import Problem
from space.rules import Rule
from tuner.cli.options import AUTO, ArchName, ConfigText, DeviceWord, Json, NoRule, profile_from_words
from tuner.cli.output import console, emit, table
from tuner.cli.problem_options import asks_problem
from tuner.exits import EXIT_ILLEGAL
from tuner.tables.entries import fields
from tuner.views.spaces import own_families

_FamilyName = Annotated[
    str | None, typer.Option("--family", help="Kernel family. \\[default: the arch's, with these knobs]")
]


@asks_problem
def explain(
    problem: Problem,
    config: ConfigText = "",
    device: DeviceWord = AUTO,
    arch: ArchName = None,
    family: _FamilyName = None,
    as_json: Json = False,
) -> None:
    """Checks whether a config is legal for a problem, and lists every rule that it breaks.

    Without --config it is the legal config nearest to the defaults. Exits with code 1 if the config is illegal.
    """
    profile = profile_from_words(device, arch)
    family, knobs = _named(config, family)
    plug = family_named(family) if family else family_with(profile.arch.name, knobs, problem)
    said = explain_config(plug, problem, config_asked(plug, problem, knobs, profile), profile)
    if as_json:
        emit(fields(said) | {"legal": said.legal, "judged": said.judged, "change": said.change or None})
    else:
        _print_explanation(said)
    if not said.legal:
        raise typer.Exit(EXIT_ILLEGAL)


def _named(config: str, family: str | None) -> tuple[str | None, dict[str, str]]:
    """The family and the knobs that `--config` and `--family` name; other commands print a config with its family."""
    head, colon, rest = config.partition(":")
    if colon and "=" not in head and family in (None, head.strip()):
        family, config = head.strip(), rest
    return family, parse_knobs(config)


@asks_problem
def space(
    problem: Problem,
    device: DeviceWord = AUTO,
    arch: ArchName = None,
    family: Annotated[str | None, typer.Option("--family", help="Kernel family. \\[default: all of the arch]")] = None,
    unpruned: Annotated[bool, typer.Option("--unpruned", help="Include configs that are not worth trying.")] = False,
    no_rule: NoRule = None,
    knobs: Annotated[bool, typer.Option("--knobs", help="List the knobs instead: values, meaning.")] = False,
    as_json: Json = False,
) -> None:
    """Counts the legal configs of a problem by family, and how many each rule removes.

    A config that breaks several rules counts under the first rule applied.
    """
    profile = profile_from_words(device, arch)
    plugs = own_families(problem, profile, family)
    if knobs:
        _list_knobs(plugs, as_json)
        return
    spaces = enumerate_all(plugs, problem, profile, pruned=not unpruned, without=no_rule or ())
    if as_json:
        emit({"problem": problem, "arch": profile.arch.name, "pruned": not unpruned,
              "families": [_space_json(found) for found in spaces]})  # fmt: skip
        return
    for found in spaces:
        console.print(f"{found.family.name} on {profile.arch.name}, {problem.title}: {found.total:,} configs "
                      "in the product of all knobs")  # fmt: skip
        rows = [(rule.id, rule.kind, f"{count:,}", rule.sentence) for rule, count in _removed(found)]
        table(("rule", "kind", "removes", "because"), rows)
        console.print(f"{found.count:,} are legal{'' if unpruned else ' and worth trying'}")


def _list_knobs(families: Sequence[Family], as_json: bool) -> None:
    if as_json:
        emit({"families": [{"family": family.name, "knobs": [fields(knob) for knob in family.knobs]}
                           for family in families]})  # fmt: skip
        return
    for family in families:
        rows = [(knob.name, " ".join(map(str, knob.domain)), knob.default, knob.decides, knob.meaning)
                for knob in family.knobs]  # fmt: skip
        console.print(f"{family.name}: compile knobs decide the program, launch knobs how it is launched")
        table(("knob", "values", "default", "decides", "meaning"), rows)


def _space_json(found: Space) -> dict[str, object]:
    removed = [{"rule": rule.id, "kind": rule.kind, "sentence": rule.sentence, "removed": count}
               for rule, count in _removed(found)]  # fmt: skip
    return {"family": found.family.name, "product": found.total, "left": found.count, "removed": removed}


def _removed(found: Space) -> list[tuple[Rule, int]]:
    """How many configs each rule removes."""
    rules = {rule.id: rule for rule in found.family.rules}
    return [(rules[rule], count) for rule, count in found.removed.items()]


def _print_explanation(said: Explanation) -> None:
    verdict = "legal" if said.legal else "illegal"
    if not said.judged:
        verdict = f"{said.config.family} alone knows what is legal"
    console.print(f"{verdict} for {said.problem.title} on {said.arch}: {said.config.knobs_text}")
    for entry in said.broken:
        console.print(f"  {entry.rule}: {entry.numbers}\n    {entry.sentence} [{entry.source}]")
    if not said.legal:
        console.print(f"  {_fix(said.change)}")
    for entry in said.not_worth:
        console.print(f"  not worth trying, {entry.rule}: {entry.sentence} ({entry.numbers})")
    if said.derived:
        console.print("  " + ", ".join(f"{name} {value:,}" for name, value in said.derived.items()))


def _fix(change: str) -> str:
    if not change:
        return f"no change of {MAX_CHANGES} knobs or fewer makes it legal"
    several = change.count(",") + 1
    return f"{change} is the nearest legal change" + (f": it changes {several} knobs at once" if several > 1 else "")
