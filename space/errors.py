"""Errors of `space`, one tree.

    SpaceError
    ├── ProblemError    a problem that is not a GEMM we can name
    ├── ConfigError     a config that is malformed (not: illegal; that is an explanation)
    ├── ArchError       an arch without its suffix, or one we have no facts about
    ├── ProfileError    a device that no known card is
    ├── FamilyError     an unknown kernel family, or a rule that it can't do without
    └── LayoutError     a tile, access, descriptor or fragment that the hardware has no layout for

A config that is well-formed but illegal raises nothing: `explain` returns what is wrong with it.
Each message names the value, the rule it breaks and the fix.
"""

from __future__ import annotations


class SpaceError(ValueError):
    """Root of the tree."""


class ProblemError(SpaceError):
    """A shape, dtype, layout or epilogue that does not describe a GEMM."""


class ConfigError(SpaceError):
    """A config that names an unknown knob, or gives a knob a value outside its domain."""


class ArchError(SpaceError):
    """An arch that is unknown or lacks its suffix."""


class ProfileError(SpaceError):
    """A device name that no known card has; the message lists the nearest ones."""


class FamilyError(SpaceError):
    """A family that is not registered, or a rule that it does not have or can't do without."""


class LayoutError(SpaceError):
    """A tile, access, descriptor or fragment that the hardware has no layout for."""
