"""Errors of `tuner`, one tree.

    TunerError
    ├── SettingsError     a GEMMTUNE_* variable has a value that it can't have
    ├── DeviceError       a device that is not here
    ├── NothingCorrect    no legal candidate, or none that is correct: nothing can be served
    ├── UnknownDevice     the store has no best of a device
    ├── NothingMeasured   too few measurements to say something about
    ├── TokenError        an API token that is malformed, taken or not there
    ├── CampaignError     a campaign that can't be made or changed
    │   ├── UnknownCampaign   there is none of that number
    │   ├── CampaignEnded     it is cancelled or finished for good
    │   └── KeyReused         an idempotency key came with another request before
    ├── FleetError        a worker that can't do what it wants
    │   ├── WorkerGone        it was not heard for too long, or has left
    │   ├── SlotTaken         another live worker has its GPU or its name
    │   ├── LeaseLost         the round is not its any more
    │   ├── ResultRefused     what it reports can't be
    │   └── Unreachable       the service does not answer, or can't for now
    ├── BuildRefused      a build that may not be kept
    │   └── BuildDiffers      another program is kept under its digest
    ├── ExportError       a table can't be written
    ├── TableError        a table that can't be read
    ├── ModelError        a learned model that can't be trained, read or used
    └── StoreError        the store can't be opened, read or written
        └── AlreadyMeasured   the same candidate would be measured twice in one study

Each message names the value, the rule and the fix.
"""

from __future__ import annotations


class TunerError(Exception):
    """Root of the tree."""


class SettingsError(TunerError):
    """The environment can't be used."""


class DeviceError(TunerError):
    """No such device."""


class NothingCorrect(TunerError):
    """There is no correct candidate."""


class UnknownDevice(TunerError):
    """The store has no best of that device."""


class TokenError(TunerError):
    """An API token can't be made or revoked."""


class CampaignError(TunerError):
    """A campaign can't be made or changed."""


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


class SlotTaken(FleetError):
    """Another live worker has the GPU or the name."""


class LeaseLost(FleetError):
    """The round ended, or belongs to another worker."""


class ResultRefused(FleetError):
    """The report breaks a rule; nothing of it was stored."""


class Unreachable(FleetError):
    """The service does not answer now; the same call may work later."""


class BuildRefused(TunerError):
    """A build is not what it says."""


class BuildDiffers(BuildRefused):
    """Two programs for one source."""


class ExportError(TunerError):
    """A table can't be written."""


class TableError(TunerError):
    """A table can't be read."""


class NothingMeasured(TunerError):
    """The store has too few measurements of what was asked."""


class ModelError(TunerError):
    """A learned model can't be trained, read or used."""


class StoreError(TunerError):
    """The store can't be used."""


class AlreadyMeasured(StoreError):
    """The measurement is there already; nothing was written."""
