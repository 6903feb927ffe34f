"""The half of `benchmarks.deployed` that needs torch: tunes, and measures one problem after the other."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

import torch

from benchmarks.command import gpu_of_torch
from benchmarks.deployed_table import Part, Row, arm_of, table
from benchmarks.deployed_timing import COLD_BYTES, Arm, Energy, launches_of, times
from benchmarks.published import command_of, facts_of, facts_table, publish
from benchmarks.restored import restore_missing
from gemmtune.layouts import layout_of
from gemmtune.torch import configure, gemm, kernels
from gemmtune.torch.sources import Found
from space.config import Config
from space.devices import find_profile
from space.kinds.gemm import Gemm
from space.rank import may_reach_power_limit, roofline_us
from tuner.answering.staleness import staleness_here
from tuner.evidence.picks import ahead
from tuner.evidence.records import Best
from tuner.evidence.store import Store
from tuner.settings import database_url, settings
from tuner.studying.guidance import guidance_for
from tuner.studying.open_worker import open_worker
from tuner.studying.study import Budget, tune
from workers.measurement import Measurement

#: Words of `space.kinds.gemm.DTYPES` that torch multiplies, and torch's dtypes of operands and results.
MULTIPLIED: Final = ("bf16", "fp16", "tf32", "fp8_e4m3", "fp8_e5m2", "int8")
DTYPES: Final = {
    "bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "f32": torch.float32,
    "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2, "int8": torch.int8, "s32": torch.int32,
}  # fmt: skip
ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class Planted:
    """A source that answers every question with one config, which the store measured for the problem."""

    config: Config
    cublaslt: str

    def find(self, problem: object, device: str) -> Found:
        """The config."""
        return Found(self.config, "planted", "measured", self.cublaslt)


def theirs(problem: Gemm) -> Callable[[Any], None]:
    """torch's own product into the fourth tensor of a set."""
    if problem.dtype_a.startswith("fp8"):
        one = torch.ones((), device="cuda")

        def scaled(each: Any) -> None:  # noqa: ANN401
            torch._scaled_mm(each[0], each[1], one, one, out_dtype=torch.bfloat16, use_fast_accum=True, out=each[3])

        return scaled
    if problem.dtype_a == "int8":
        return lambda each: torch._int_mm(each[0], each[1], out=each[3])
    return lambda each: torch.matmul(each[0], each[1], out=each[3])


def ours(each: Any) -> None:  # noqa: ANN401
    """`gemmtune.torch`'s product into the third tensor of a set."""
    gemm(each[0], each[1], out=each[2])


def sets_of(problem: Gemm, most: int) -> list[tuple[torch.Tensor, ...]]:
    """Random operands, two outputs each: sets of `COLD_BYTES` together, but `most` sets at most."""
    m, n, k = problem.m, problem.n, problem.k

    def made(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        kind = torch.bfloat16 if rows * columns > 2e8 else torch.float32
        x = torch.randn(rows, columns, device="cuda", dtype=kind)
        return (x * 40).clamp(-127, 127).to(dtype) if dtype is torch.int8 else x.to(dtype)

    of_a, of_b, of_c = (DTYPES[word] for word in (problem.dtype_a, problem.dtype_b, problem.dtype_c))
    sets = []
    for _ in range(min(most, COLD_BYTES // problem.min_bytes + 1)):
        a = made(k, m, of_a).t() if problem.layout[0] == "t" else made(m, k, of_a)
        b = made(n, k, of_b).t() if problem.layout[1] == "t" else made(k, n, of_b)
        outputs = (torch.empty(m, n, device="cuda", dtype=of_c) for _ in range(2))
        sets.append((a, b, *outputs))
    return sets


def candidates(store: Store, best: Best) -> dict[str, Config]:
    """The fastest of our families, of what the library's heuristic lists, and of what it doesn't list, in the finals
    that the best comes from.
    """
    finals = [
        stored.measurement for stored in store.finals_beside(best.winner.id)
        if stored.measurement.policy is best.policy
    ]  # fmt: skip
    of_arm: dict[str, list[Measurement]] = {}
    for one in finals:
        of_arm.setdefault(arm_of(one), []).append(one)
    return {arm: ahead(measured)[0].config for arm, measured in of_arm.items()}


@contextmanager
def tuner_of(store: Store, candidates: int | None) -> Iterator[Callable[[Gemm], float | None]]:
    """A function that tunes a problem which the store lacks or has as stale, and says how many seconds it took.

    The function ends the program where there is no cuBLASLt: nothing would compete with ours.
    """
    if candidates is None:
        yield lambda _: None
        return
    with open_worker("cuda:0", settings()) as worker:
        guidance = guidance_for(worker.facts.name, settings().model_dir)

        def tuned(problem: Gemm) -> float | None:
            best = store.best(problem, worker.facts.name)
            if best and not staleness_here(best):
                return None
            if not worker.program(problem).cublaslt:
                raise SystemExit("cuBLASLt can't be loaded, and nothing competes with ours: install the extra `gpu`")
            began = time.monotonic()
            tune(store, worker, problem, Budget(candidates), guidance=guidance)
            return time.monotonic() - began

        yield tuned


def row(store: Store, db: str, name: str, group: str, problem: Gemm, device: str, energy: Energy) -> Row | str:
    """Measures one problem; the reason where it can't be."""
    best = store.best(problem, device)
    if best is None:
        return f"{problem.title} was not tuned"
    profile = find_profile(device)
    expected_us = 2.0 + (roofline_us(problem, profile) if profile else 0.0)
    sets = sets_of(problem, launches_of(expected_us))
    torchs, planted_cublaslt = Arm(theirs(problem)), best.winner.provenance.cublaslt
    configs = {"served": best.config, **candidates(store, best)}
    # An arm with the config of another one has its times.
    arms = {
        config: Arm(ours, partial(configure, db if config == best.config else Planted(config, planted_cublaslt),
                                  trusted=["measured"]))
        for config in configs.values()
    }  # fmt: skip
    refused = {config: why for config, arm in arms.items() if (why := why_torch(arm, sets[0]))}
    served = f"{best.config.family}, {best.policy.value}"
    if best.config in refused:
        served = f"torch: {refused[best.config]}"
    # A refused config that is not served has no line: its times would be torch's.
    shown = {arm: config for arm, config in configs.items() if arm == "served" or config not in refused}
    timed_as: dict[Config, str] = {}
    for arm, config in shown.items():
        timed_as.setdefault(config, arm)
    timed = times(
        {"torch": torchs, **{arm: arms[config] for config, arm in timed_as.items()}}, sets,
        expected_us, energy, settles=profile is not None and may_reach_power_limit(problem, profile),
    )  # fmt: skip
    found = {"torch": timed["torch"], **{arm: timed[timed_as[config]] for arm, config in shown.items()}}
    arms[best.config].prepare()
    arms[best.config].product(sets[0])
    torchs.product(sets[0])
    return Row(
        name, group, problem.shape, problem.dtype, problem.flops, served,
        {arm: one.us for arm, one in found.items()}, {arm: one.joules for arm, one in found.items()}, _error(sets[0]),
    )  # fmt: skip


def as_seen(problem: Gemm) -> Gemm:
    """The problem that `gemmtune.torch` reads off the operands: a single row or column has one layout of the two."""

    def letter(said: str, rows: int, columns: int) -> str:
        found = layout_of((rows, columns), (1, rows) if said == "t" else (columns, 1), 1)
        return found[0] if found else said

    a, b = problem.layout[0], problem.layout[1]
    return replace(problem, layout=letter(a, problem.m, problem.k) + letter(b, problem.k, problem.n))


def unlike(problem: Gemm) -> str:
    """Why the arms compute another product than this one; empty where they don't."""
    if problem.dtype not in MULTIPLIED:
        return f"the arms multiply {', '.join(MULTIPLIED)}, not {problem.dtype}"
    plain = problem.batch == 1 and problem.epilogue == "none"
    return "" if plain else "the arms multiply two matrices, without a batch or an epilogue"


def why_torch(arm: Arm, one: Any) -> str:  # noqa: ANN401
    """Why torch computes the arm's product; empty where the arm's config does."""
    arm.prepare()
    arm.product(one)
    prepared = kernels.everything()[-1]
    return "" if isinstance(prepared, kernels.Kernel) else prepared.why


def _error(one: Any) -> float:  # noqa: ANN401
    a, b, c, d = one
    picked = torch.randperm(a.shape[0], device="cuda")[:ROWS]
    right = a[picked].double() @ b.double()
    served, torchs = (float((each[picked].double() - right).abs().max()) for each in (c, d))
    if torchs:
        return served / torchs
    # Nothing is a multiple of no error, which integers have.
    return 0.0 if served == 0 else math.inf


def measured(
    wanted: Iterable[tuple[str, str, Gemm]], db: str, candidates: int | None, ends: float
) -> Iterator[tuple[str, Row | str]]:
    """Tunes, where that is asked for, and measures one problem after the other until `ends`, in monotonic seconds.

    Returns:
        Each problem's name with its row, or with why it has none.
    """
    device, energy = torch.cuda.get_device_name(), Energy()
    with (
        Store.open(database_url(db), create=candidates is not None) as store,
        tuner_of(store, candidates) as tuned,
        ExitStack() as last,
    ):
        # Closes what the arms opened: only then does SQLite bring all that was written into the file.
        last.callback(configure)
        for name, group, problem in wanted:
            if time.monotonic() > ends:
                return
            problem = as_seen(problem)
            try:
                why = unlike(problem)
                seconds = None if why else tuned(problem)
                found = why or row(store, db, name, group, problem, device, energy)
            except Exception as error:  # one product that fails is a line, not the end
                found = f"{type(error).__name__}: {error}"
            torch.cuda.empty_cache()
            yield name, found if isinstance(found, str) else replace(found, tune_seconds=seconds)


def measure(given: argparse.Namespace, problems: Sequence[tuple[str, str, Gemm]]) -> int:
    """Prints a line per problem that the part of `--json` lacks, then the summary of all that it holds."""
    gpu_of_torch()
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    part = Part.read(given.json) if given.json and given.json.exists() else Part()
    done = {one.name for one in part.rows} | part.refused.keys()
    read = [given.problems, given.backup] if given.backup else [given.problems]
    if given.json:
        part.begin(command_of("deployed"), facts_of(facts_table("deployed", read)))
    restore_missing(given.db, given.backup)
    # The longest first, so that parts which begin together end together, and lack short ones if time runs out.
    wanted = sorted((one for one in problems if one[0] not in done), key=lambda one: -one[2].flops)
    for name, found in measured(wanted, given.db, given.tune, time.monotonic() + given.seconds):
        if isinstance(found, str):
            part.refused[name] = found
            print(f"{name}: {found}", flush=True)
        else:
            part.rows.append(found)
            print(table([found]).splitlines()[2], flush=True)
        if given.json:
            given.json.write_text(json.dumps(asdict(part)))
    text = part.text([name for name, _, _ in problems])
    print(text)
    publish("deployed", given.out, text, table(part.rows), read=read)
    return 0
