"""Devices: one profile per GPU, resolved once from the driver's facts or from a table of known cards."""

from __future__ import annotations

from space.devices.profile import DeviceProfile
from space.devices.resolve import (
    DEFAULT_DEVICE,
    DriverFacts,
    find_profile,
    identity_named,
    identity_of,
    known_names,
    profile_from,
    profile_named,
    reference_profile,
    unknown_device,
)

__all__ = [
    "DEFAULT_DEVICE",
    "DeviceProfile",
    "DriverFacts",
    "find_profile",
    "identity_named",
    "identity_of",
    "known_names",
    "profile_from",
    "profile_named",
    "reference_profile",
    "unknown_device",
]
