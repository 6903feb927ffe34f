"""Errors of `space`, one tree.

    SpaceError
    ├── ProblemError    fields that describe no problem
    ├── ConfigError     a malformed config
    ├── ArchError       an unknown arch, or one without its suffix
    ├── ProfileError    a device that matches no known card
    ├── FamilyError     an unknown kernel family, or a rule that it lacks or cannot switch off
    └── LayoutError     a tile, access, descriptor or fragment that the hardware has no layout for

A well-formed but illegal config raises nothing: `explain` says what is wrong with it. Each message names the value,
the rule that it breaks and the fix.
"""

from __future__ import annotations


class SpaceError(ValueError):
    """Root of the tree."""


class ProblemError(SpaceError):
    """Fields, or a key, that describe no problem of a known kind."""


class ConfigError(SpaceError):
    """A config with an unknown knob, or with a value outside a knob's domain."""


class ArchError(SpaceError):
    """An arch that is unknown or lacks its suffix."""


class ProfileError(SpaceError):
    """A device name that matches no known card; the message lists the nearest ones."""


class FamilyError(SpaceError):
    """A family that is not registered, or a rule that it does not have or cannot switch off."""


class LayoutError(SpaceError):
    """A tile, access, descriptor or fragment that the hardware has no layout for."""
