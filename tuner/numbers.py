"""How numbers are written in queries, on the command line and in variables: Python takes 1_0 for 10 too, and digits of
any script."""

from __future__ import annotations

import re
from typing import Final

WHOLE: Final = re.compile("-?[0-9]+")
DECIMAL: Final = re.compile("[0-9.eE+-]+")
