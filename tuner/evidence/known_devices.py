"""Which names of devices a list may be asked for: an empty list for a name that nobody has looks like good news."""

from __future__ import annotations

from sqlalchemy import select

from space.devices import find_profile, profile_named
from tuner.evidence.models import DeviceRow
from tuner.evidence.store import Store


def check_known(store: Store, device: str | None) -> None:
    """Checks the name of a device for which nothing was found; None is every device.

    Raises:
        ProfileError: no known card has the name, and nothing in the store is of a device called so; the message lists
            the nearest cards.
    """
    if device is None or find_profile(device) is not None:
        return
    # Measurements of cards that gemmtune does not know are stored, too.
    with store.transaction() as session:
        if session.scalar(select(DeviceRow.id).where(DeviceRow.name == device).limit(1)) is None:
            profile_named(device)
