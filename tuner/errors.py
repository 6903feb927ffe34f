"""Errors of `tuner`, one tree.

    TunerError
    ├── SettingsError     a GEMMTUNE_* variable has an invalid value
    ├── DeviceError       the device is not on this machine
    ├── NothingCorrect    no candidate is legal, or none is correct: nothing can be served
    ├── UnknownDevice     the store has no best of a device
    ├── UnknownMeasurement  the store has no such measurement, or can't read it
    ├── NotComparable     times of two measurements stand for different things, or one can't be true
    ├── UnknownStudy      the store has no such study
    ├── CountFailed       legal configs could not be counted in time
    ├── NothingMeasured   too few measurements to draw conclusions from
    ├── TokenError        an API token is malformed, taken or missing
    ├── CampaignError     a campaign can't be created or changed
    │   ├── UnknownCampaign   no campaign has that number
    │   ├── CampaignEnded     it is cancelled or finished for good
    │   └── KeyReused         the idempotency key was used for another request
    ├── FleetError        a worker's request is refused
    │   ├── WorkerGone        the worker was silent for too long, or has left
    │   │   └── UnknownWorker     the caller has no such worker
    │   ├── SlotTaken         another live worker has its GPU or its name
    │   ├── LeaseLost         another worker has the round, or it has ended
    │   │   └── UnknownRound      the caller has no such round
    │   ├── ResultRefused     the report is invalid
    │   │   └── OtherVersion      the service's version takes no such reports
    │   └── Unreachable       the service does not answer, or can't at the moment
    ├── BuildRefused      a build can't be accepted
    │   └── BuildDiffers      another program is stored under its digest
    ├── ExportError       a table can't be written
    ├── TableError        a table can't be read
    ├── ModelError        a learned model can't be trained, read or used
    └── StoreError        the store can't be opened, read or written
        ├── NewerContent      the store holds what only a newer version reads
        ├── StoreGone         its file or its log is another one: this process can't use it any more
        ├── AlreadyMeasured   the same candidate would be measured twice in one study
        ├── UnstorableValue   a value that no database stores, such as text with a NUL
        └── Quarantined       a stored measurement can't be true, or its card is unknown

Each message names the value, the rule and the fix.
"""

from __future__ import annotations


class TunerError(Exception):
    """Root of the tree."""


class SettingsError(TunerError):
    """An environment variable is invalid."""


class DeviceError(TunerError):
    """No such device."""


class NothingCorrect(TunerError):
    """There is no correct candidate."""


class UnknownDevice(TunerError):
    """The store has no best of that device."""


class UnknownMeasurement(TunerError):
    """The store has no such measurement, or can't read it."""


class NotComparable(TunerError):
    """The times of two measurements stand for different things, or one can't be true."""


class UnknownStudy(TunerError):
    """The store has no such study."""


class CountFailed(TunerError):
    """Legal configs could not be counted in time."""


class TokenError(TunerError):
    """An API token can't be made or revoked."""


class CampaignError(TunerError):
    """A campaign can't be created or changed."""


class UnknownCampaign(CampaignError):
    """There is no such campaign."""


class CampaignEnded(CampaignError):
    """The campaign is cancelled or finished."""


class KeyReused(CampaignError):
    """The idempotency key belongs to another request."""


class FleetError(TunerError):
    """A worker is refused."""


class WorkerGone(FleetError):
    """The worker counts as gone; it has to register again."""


class UnknownWorker(WorkerGone):
    """No worker of the caller has that id."""


class SlotTaken(FleetError):
    """Another live worker has the GPU or the name.

    Attributes:
        retry_after: seconds of silence after which a worker that died has freed it; 0 where the service doesn't say.
    """

    retry_after = 0.0


class LeaseLost(FleetError):
    """The round ended, or belongs to another worker."""


class UnknownRound(LeaseLost):
    """No round of the caller has that id."""


class ResultRefused(FleetError):
    """The report breaks a rule; none of it was stored."""


class OtherVersion(ResultRefused):
    """The service's version lacks a field that this one sends, or needs one that it doesn't: it takes no report."""


class Unreachable(FleetError):
    """The service does not answer now; the same call may work later.

    Attributes:
        retry_after: seconds that the service, or a proxy before it, asks its caller to wait; 0 where neither says.
    """

    retry_after = 0.0


class BuildRefused(TunerError):
    """A build does not match its digest."""


class BuildDiffers(BuildRefused):
    """Two programs for one source."""


class ExportError(TunerError):
    """A table can't be written."""


class TableError(TunerError):
    """A table can't be read."""


class NothingMeasured(TunerError):
    """The store has too few measurements of the problem.

    Attributes:
        reason: what it lacks, up to where the message says what to run.
        tune: the command that measures it; empty without one.
    """

    def __init__(self, reason: str, tune: str = "") -> None:
        super().__init__(f"{reason} run `{tune}`" if tune else reason)
        self.reason, self.tune = reason, tune


class ModelError(TunerError):
    """A learned model can't be trained, read or used."""


class StoreError(TunerError):
    """The store can't be used."""


class NewerContent(StoreError):
    """The store holds what this version can't read, as a knob of a newer one."""


class StoreGone(StoreError):
    """The store's file or its log is another one than this process has open; no later call will succeed."""


class AlreadyMeasured(StoreError):
    """The measurement exists already; nothing was written."""


class UnstorableValue(StoreError):
    """A value that no database stores, such as text with a NUL; storing it again fails again."""


class Quarantined(StoreError):
    """A stored measurement can't be true, or nothing can judge it: it is left out of every answer."""
