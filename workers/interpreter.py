"""The interpreter, started again for a module of ours."""

from __future__ import annotations

import os
import sys
from typing import Final

#: Without the user's folder in front of all modules, as `-m` puts it: a `workers` or `space` there is none of ours.
PYTHON: Final = (sys.executable, "-P")


def imports_as_here() -> dict[str, str]:
    """The environment in which another interpreter imports from where this process does."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
