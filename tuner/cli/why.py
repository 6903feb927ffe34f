"""`gemmtune why`: the deciding knobs, the cost of each single change of the winner, and the runners-up."""

from __future__ import annotations

from space.config import Config
from space.family import is_own
from space.problem import Problem
from tuner.answering import importance
from tuner.answering.importance import LEAST, Why
from tuner.answering.rivals import out_since, picked_today
from tuner.answering.staleness import changed_since
from tuner.cli.options import AUTO, Db, DeviceName, Json, existing_store, tuned_there
from tuner.cli.output import console, show, table
from tuner.cli.problem_options import asks_problem
from tuner.cli.replays import print_replays
from tuner.counts import counted
from tuner.evidence.records import StoredMeasurement
from tuner.prediction.files import model_for
from tuner.settings import settings


@asks_problem
def why(problem: Problem, device: DeviceName = AUTO, db: Db = None, as_json: Json = False) -> None:
    """Explains why a tuned problem's winner won, from the measurements in the store."""
    with existing_store(db) as store, tuned_there(db):
        found = importance.why(store, problem, device, model=model_for(device, settings().model_dir).model)
        best = store.best(problem, device) if found.served else None
        finals = store.finals_beside(best.winner.id) if best else []
    today, out = (picked_today(best, finals), out_since(best, finals)) if best else (None, "")
    changed = changed_since(best) if best else ""
    show(found, as_json, lambda each: _print(each, changed, today, out))


def _fastest(found: Why) -> Config | None:
    """Our fastest where a library's algorithm won; None where none of ours was correct."""
    return found.runners_up[0].config if found.runners_up else None


def _print(found: Why, changed: str, today: StoredMeasurement | None, out: str) -> None:
    """Prints why a config won.

    Args:
        changed: how its kernel has changed since; empty where it has not.
        today: what today's rules pick in its place; None where they pick it too.
        out: why it is out of the running by now; empty while it is in.
    """
    what = f"the served one takes {found.served_us:.2f} µs under {found.served_policy}" if found.served_us else ""
    console.print(f"{found.problem.title} on {found.device}: {counted(found.measured, 'correct candidate')}, "
                  f"{what or 'none is served, the fastest follows'}; screened under {found.policy}, it takes "
                  f"{found.time_us:.2f} µs")  # fmt: skip
    console.print(f"  {found.winner.key}")
    if changed:
        console.print(f"  {changed}: these are times of the one before")
    if today:
        picked = today.measurement.config.key
        then = f"it {out}" if out else "an earlier version's rule picked it"
        console.print(f"  {then}; of the same finals today's picks {picked}")
    print_replays({found.problem: found.replay}, found.device)
    # The library's knobs are not ours, though some have the same names: where it won, our fastest is the measure.
    ours, whose = (found.winner, "winner's") if is_own(found.winner) else (_fastest(found), "our fastest's")
    values = dict(ours.values) if ours else {}
    rows = [
        (each.knob, str(values.get(each.knob, "–")), f"{each.share:.0%}", f"{each.cost - 1:+.1%}" if each.cost else "–")
        for each in found.importances
    ]
    if rows:
        table(("knob", whose, "importance", "best of any other value"), rows)
    else:
        console.print(f"too few candidates of its family were correct to tell which knobs decide: {LEAST} are needed")
    changes = [
        (f"{each.knob}={each.value}", f"{each.ratio - 1:+.1%}",
         "measured" if each.source == "measured" else f"expected, {each.low - 1:+.1%} to {each.high - 1:+.1%}")
        for each in found.changes if each.ratio and each.low and each.high
    ]  # fmt: skip
    if found.changes:
        table(("one change", "costs", ""), changes)
        illegal = sum(change.source == "illegal" for change in found.changes)
        console.print(f"{illegal} other single changes are illegal; `gemmtune explain` says why")
    others = [(each.config.knobs_text, f"{each.ratio - 1:+.1%}") for each in found.runners_up]
    table(("fastest of another structure", "costs"), others)
