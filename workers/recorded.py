"""The recorded device: replays measurements of a real GPU behind the worker port.

Builds are real: each candidate is compiled here with NVRTC before its recorded screening is replayed.
Times, failures and clocks are the recording's. At full speed a replay takes as long as the builds; in real time
each candidate also takes what it took on the GPU, so that what depends on the clock can be tried out.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Self

from space.config import Config
from space.devices import find_profile
from space.explain import legal_among
from space.family import is_own
from space.problem import Problem
from space.rank import power_decides
from space.structures import structure_of
from workers.build import BuildFailure
from workers.builder import BuildCache, Builder
from workers.errors import RecordingError
from workers.measurement import DeviceFacts, Measurement, Outcome, Policy, Program, Provenance
from workers.ports import More, no_more
from workers.recording import Recording, file_name, read_recording
from workers.replays import noted, replay_sentence, sources_here

#: A longer pause between two measurements is not the candidate's: the run was stopped meanwhile.
MAX_SECONDS: Final = 60.0
#: Time of a candidate where the recording does not say: verification, heat-up, five replays of 1.5 ms.
USUAL_SECONDS: Final = 0.02

Sleep = Callable[[float], None]
#: Samples of a screening that stands in finals, fewer than any finals have.
_OF_SCALED: Final = 2
_BESIDE: Final = "not chosen by this search: it took part in the recorded finals, and is of a finalist's structure"
_NOTHING_MEASURED: Final[dict[str, Any]] = {"samples_us": (), "clocks": None, "verification": None}


class NoBuilder:
    """Stands in for a builder where nothing has to be compiled: a demonstration shows times, and runs no kernel."""

    arch = ""

    def builds(self, problem: Problem, candidates: Sequence[Config]) -> Iterator[tuple[Config, None]]:
        """Each candidate, without a build."""
        return ((config, None) for config in candidates)

    def close(self) -> None:
        """Does nothing."""


class RecordedRound:
    """One recorded problem; see `workers.ports.Round`.

    Args:
        sleep: waits for as long as the candidate took; None replays at full speed.
    """

    def __init__(self, recording: Recording, builder: Builder | NoBuilder, sleep: Sleep | None = None) -> None:
        self._recording, self._builder, self._sleep = recording, builder, sleep
        self._screened: dict[str, Measurement] = {}
        self._seconds: dict[str, float] = {}
        self._final: dict[Policy, dict[str, Measurement]] = {}
        self._power_decides = power_decides(recording.problem, find_profile(recording.facts.name))
        here = sources_here(recording.problem, recording.facts.arch)
        taken = zip(recording.measurements, recording.taken_at, seconds_taken(recording), strict=True)
        for (measurement, by), moment, seconds in taken:
            said = replay_sentence(measurement.config, by, moment, here, kept=True)
            told, key = replace(measurement, note=noted(measurement.note, said)), measurement.config.key
            if measurement.stage == "screen":
                self._screened[key], self._seconds[key] = told, seconds
            else:
                self._final.setdefault(measurement.policy, {})[key] = told

    @property
    def policy(self) -> Policy:
        """The policy of the recording's screenings."""
        return self._recording.screens_under

    @property
    def provenance(self) -> Provenance:
        return self._recording.measurements[0][1]

    @property
    def baselines(self) -> tuple[Config, ...]:
        """The library's candidates that were screened."""
        return tuple(one.config for one in self._screened.values() if not is_own(one.config))

    def screen(self, candidates: Sequence[Config], more: More = no_more) -> Iterator[Measurement]:
        """Compiles each candidate here, then replays its recorded measurement.

        No device waits here, so `more` is not called: a search then knows every result when it proposes.
        """
        own = [config for config in candidates if is_own(config)]
        for config in candidates:
            if config not in own:
                yield self._replayed(config)
        for config, build in self._builder.builds(self._recording.problem, own):
            recorded = self._replayed(config)
            if isinstance(build, BuildFailure):
                recorded = replace(recorded, outcome=Outcome.COMPILE, detail=build.reason, **_NOTHING_MEASURED)
            yield recorded

    def finals(self, finalists: Sequence[Config], turns: int) -> tuple[Measurement, ...]:
        """Recorded finals of the finalists and of the library, by policy.

        Where power decides, another search may have sent another config of a structure to the finals: all of the
        finalists' structures that have a time under the deciding policy take part, in the recording's order, and the
        notes of those that are no finalists say so.
        Under the policy of the screenings, a finalist that was only screened is scaled to finals: its samples are
        multiplied by the median ratio of the candidates that were in both, and its note says so. It keeps its last two
        samples, fewer than any finals have: no ratio takes them for turns of these.
        """
        measured: list[Measurement] = []
        taking_part = self._in_full(finalists)
        for policy, known in sorted({self.policy: {}, **self._final}.items()):
            for config in taking_part:
                if (one := known.get(config.key)) is not None:
                    measured.append(one if config in finalists else _with_note(one, _BESIDE))
                elif policy is self.policy and config.key in self._screened:
                    measured.append(self._scaled(config))
            library = [one for one in known.values() if not is_own(one.config)]
            measured += sorted(library, key=lambda one: one.config.number("rank"))
        self._pass(len(finalists) * USUAL_SECONDS)
        return tuple(measured)

    def _in_full(self, finalists: Sequence[Config]) -> list[Config]:
        """What takes part in finals: where power decides, all of the finalists' structures that were timed in full, and
        finalists of other structures.
        """
        if not self._power_decides:
            return list(finalists)
        deciding = next((self._final[each] for each in (Policy.SUSTAINED, self.policy) if each in self._final), {})
        structures = {structure_of(finalist) for finalist in finalists}
        every = (one.config for known in (deciding, *self._final.values()) for one in known.values())
        recorded = dict.fromkeys(
            config for config in every if is_own(config) and structure_of(config) in structures
        )  # fmt: skip
        # A rule may be newer than the recording; the finalists themselves are candidates of today.
        legal = legal_among(self._recording.problem, recorded, self._recording.facts.profile)
        timed = {
            structure_of(one.config) for one in deciding.values()
            if one.outcome is Outcome.CORRECT and one.config in legal
        }  # fmt: skip
        others = (config for config in finalists if structure_of(config) not in timed)
        return [*(config for config in recorded if config in legal and structure_of(config) in timed), *others]

    def _replayed(self, config: Config) -> Measurement:
        recorded = self._screened.get(config.key)
        if recorded is None:
            raise RecordingError(
                f"{config.key} is not in the recording of {self._recording.problem.shape}: "
                f"propose only what `measurable` names"
            )
        self._pass(self._seconds[config.key])
        return recorded

    def _scaled(self, config: Config) -> Measurement:
        screened = self._screened[config.key]
        samples = tuple(sample * self._hotter for sample in screened.samples_us[-_OF_SCALED:])
        said = f"screened only, times {self._hotter:.3f} as in finals"
        return replace(_with_note(screened, said), stage="final", samples_us=samples)

    @cached_property
    def _hotter(self) -> float:
        """Finals' times over screening's under the policy of the screenings, the median of what was in both."""
        finals = self._final.get(self.policy, {})
        both = [
            one.median_us / screened.median_us for key, one in finals.items()
            if (screened := self._screened.get(key)) and screened.samples_us and one.samples_us
        ]  # fmt: skip
        return statistics.median(both) if both else 1.0

    def _pass(self, seconds: float) -> None:
        if self._sleep is not None:
            self._sleep(seconds)


def _with_note(one: Measurement, said: str) -> Measurement:
    return replace(one, note="; ".join(filter(None, (one.note, said))))


def seconds_taken(recording: Recording) -> list[float]:
    """How long each measurement took: its share of the time since those kept before it.

    Measurements that were kept together have one moment between them. Where nothing is known it is the median of
    the others.
    """
    known: list[float | None] = []
    before: datetime | None = None
    for moment, together in groupby(recording.taken_at):
        count = len(list(together))
        gap = (moment - before).total_seconds() if moment and before else None
        known += [gap / count if gap is not None and 0 <= gap <= MAX_SECONDS * count else None] * count
        before = moment
    usual = statistics.median([seconds for seconds in known if seconds is not None] or [USUAL_SECONDS])
    return [usual if seconds is None else seconds for seconds in known]


class RecordedWorker:
    """A folder of recordings of one device model; see `workers.ports.Worker`.

    Args:
        real_time: whether candidates take as long as they took on the GPU; at full speed only the builds take time.
        build_cache: builds of other machines.
        compiles: whether candidates are compiled before they are replayed.
    """

    def __init__(
        self, folder: Path, cache_dir: Path | None, real_time: bool = False, build_cache: BuildCache | None = None,
        compiles: bool = True,
    ) -> None:  # fmt: skip
        """Opens a folder.

        Raises:
            RecordingError: it holds no recording.
        """
        self._folder = folder
        self._builder = Builder(cache_dir, build_cache=build_cache) if compiles else NoBuilder()
        self._sleep = time.sleep if real_time else None
        self._files = sorted(folder.glob("*.parquet"))
        if not self._files:
            raise RecordingError(
                f"{folder} holds no recording: take one with `gemmtune record` on a GPU, or point "
                f"GEMMTUNE_RECORDED_DIR at a folder that has some"
            )
        self._open: dict[Path, Recording] = {}
        first = self._recording(self._files[0])
        digest = hashlib.sha256("\n".join(path.name for path in self._files).encode()).hexdigest()
        screening = first.screens_under
        self._facts = replace(first.facts, kind="recorded", uuid=digest[:16], screening=screening)
        self._builder.arch = first.facts.arch

    @property
    def facts(self) -> DeviceFacts:
        """The recorded GPU's, marked as recorded."""
        return self._facts

    def recording_of(self, problem: Problem) -> Recording | None:
        """The recording of one problem; None when there is none."""
        path = self._folder / file_name(problem)
        return self._recording(path) if path in self._files else None

    def measurable(self, problem: Problem) -> frozenset[str]:
        """Keys of the recorded candidates; empty for a problem that was not recorded."""
        recording = self.recording_of(problem)
        if recording is None:
            return frozenset()
        return frozenset(
            measurement.config.key
            for measurement, _ in recording.measurements
            if measurement.stage == "screen" and is_own(measurement.config)
        )

    def program(self, problem: Problem) -> Program:
        """The program that ran when `problem` was recorded.

        Raises:
            RecordingError: it was not, or its recording can't be read.
        """
        return self._known(problem).measurements[0][1].program

    def begin(self, problem: Problem) -> RecordedRound:
        """Opens the recording of `problem`.

        Raises:
            RecordingError: there is none, or it can't be read.
        """
        return RecordedRound(self._known(problem), self._builder, self._sleep)

    def _known(self, problem: Problem) -> Recording:
        recording = self.recording_of(problem)
        if recording is None:
            raise RecordingError(
                f"{problem.title} was not recorded on {self._facts.name}: `gemmtune recordings list {self._folder}` "
                f"names the {len(self._files)} problems that were; `gemmtune best {problem.shape}` predicts without a "
                f"measurement"
            )
        return recording

    def close(self) -> None:
        """Stops the compilers."""
        self._builder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _recording(self, path: Path) -> Recording:
        if path not in self._open:
            found = read_recording(path)
            device = next(iter(self._open.values()), found).facts.name
            if found.facts.name != device:
                raise RecordingError(
                    f"{path} was taken on {found.facts.name}, {self._files[0].name} beside it on {device}: "
                    f"give each device a folder"
                )
            if path.name != file_name(found.problem):
                raise RecordingError(
                    f"{path} is a recording of {found.problem.title}: name it {file_name(found.problem)}"
                )
            self._open[path] = found
        return self._open[path]
