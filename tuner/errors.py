"""Errors of `tuner`, one tree.

    TunerError
    ├── SettingsError     a GEMMTUNE_* variable has a value that it can't have
    ├── DeviceError       a device that is not here
    ├── NothingCorrect    no legal candidate, or none that is correct: nothing can be served
    ├── UnknownDevice     the store has no best of a device
    ├── TokenError        an API token that is malformed, taken or not there
    ├── ExportError       a table can't be written
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


class ExportError(TunerError):
    """A table can't be written."""


class ModelError(TunerError):
    """A learned model can't be trained, read or used."""


class StoreError(TunerError):
    """The store can't be used."""


class AlreadyMeasured(StoreError):
    """The measurement is there already; nothing was written."""
