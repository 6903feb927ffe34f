"""Hidden: a module of the user's has the name of one of our packages, and Python finds it first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

#: Our packages beside this one.
_OWN: Final = ("space", "workers", "tuner", "api")


@contextmanager
def imports() -> Iterator[None]:
    """Imports of ours; one that fails because another module has the name of a package of ours says which.

    Raises:
        ImportError: as the import.
    """
    try:
        yield
    except ImportError as error:
        name = (error.name or "").partition(".")[0]
        if name in _OWN and (other := _in_place_of(name)):
            # Python's sentence names a module of ours, which is there.
            raise ImportError(
                f"{other} hides gemmtune's own package {name!r}: rename it, or keep its folder out of Python's path, "
                "which begins with that of the program", name=error.name
            ) from error  # fmt: skip
        raise


def _in_place_of(name: str) -> str:
    """The file that Python takes for a package of ours; empty if it is ours."""
    spec = find_spec(name)
    found = Path(spec.origin).resolve() if spec and spec.origin else None
    ours = Path(__file__).resolve().parents[1] / name
    return str(found) if found and found.parent != ours else ""
