"""What the documentation's pages let a reader type: their blocks of code, with the marks that say what each needs.

A block stands in a fence that names its language. `bash` has commands, `console` commands behind `$` with what they
print, `python` a program. A comment of its own line before the fence says why nothing runs it as it stands, for example
`<!-- needs a GPU -->`, or with which code its commands end, `<!-- exit code 1 -->`, or that curl would go on for ever,
`<!-- does not end -->`. No reader of the page sees it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = tuple(sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]))
#: Blocks in these languages are run, unless their mark begins with `needs` or `takes`.
COMMANDS: Final = ("bash", "console")
PROGRAMS: Final = ("python",)
#: Why a block is not run where the documentation is tested.
GPU: Final = "needs a GPU"
MINUTE: Final = "takes a minute"
PYTORCH: Final = "needs PyTorch"
NEEDS: Final = (GPU, "needs a GPU for minutes", "needs a GPU and PyTorch", PYTORCH, "needs a container engine",
                "needs a network", "needs several machines", MINUTE)  # fmt: skip
#: The mark of a stream that ends with the reader's patience.
ENDLESS: Final = "does not end"
_FENCE: Final = re.compile(r"^( *)```(.*)$")
_MARK: Final = re.compile(r"^ *<!-- (.*) -->$")
_EXIT: Final = re.compile(r"exit code (\d+)")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a page.

    Attributes:
        line: of its first line, from 1.
        language: the fence's; empty for a block without one.
        mark: the comment before it; empty without one.
    """

    page: Path
    line: int
    language: str
    text: str
    mark: str = ""

    @property
    def name(self) -> str:
        """`docs/start.md:12`."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether it is run where the documentation is tested."""
        return self.language in COMMANDS + PROGRAMS and self.mark not in NEEDS

    @property
    def code(self) -> int:
        """The exit code of its commands; curl's own where its time is over."""
        if self.mark == ENDLESS:
            return 28
        match = _EXIT.fullmatch(self.mark)
        return int(match[1]) if match else 0

    def commands(self) -> list[tuple[str, str]]:
        """Its commands, each with what the page shows as its output."""
        if self.language != "console":
            return [(command, "") for command in _whole(self.text.splitlines())]
        found: list[tuple[str, str]] = []
        typed: list[str] = []
        for line in self.text.splitlines():
            if typed or line.startswith("$ "):
                typed.append(line if typed else line.removeprefix("$ "))
                if len(_whole(typed)) == 1 and _complete("\n".join(typed)):
                    found.append(("\n".join(typed), ""))
                    typed = []
            elif found:
                found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
        return found


def blocks(page: Path) -> list[Block]:
    """Every block of a page; one without a fence has no language."""
    found: list[Block] = []
    lines = page.read_text().splitlines()
    place, mark, before = 0, "", ""
    while place < len(lines):
        line = lines[place]
        if match := _FENCE.match(line):
            end = next(at for at in range(place + 1, len(lines)) if lines[at] == f"{match[1]}```")
            text = "\n".join(each.removeprefix(match[1]) for each in lines[place + 1 : end])
            found.append(Block(page, place + 2, match[2].strip(), text, mark))
            place = end
        elif line.startswith("    ") and not before.strip():
            found.append(Block(page, place + 1, "", line.strip(), mark))
        comment = _MARK.match(line)
        mark = comment[1] if comment else mark if not line.strip() else ""
        before = line
        place += 1
    return found


def _whole(lines: list[str]) -> list[str]:
    """Commands of several lines each in one string; comments and empty lines left out."""
    found: list[str] = []
    typed: list[str] = []
    for line in lines:
        if not typed and (not line.strip() or line.lstrip().startswith("#")):
            continue
        typed.append(line)
        if _complete("\n".join(typed)):
            found.append("\n".join(typed))
            typed = []
    return found + (["\n".join(typed)] if typed else [])


def _complete(text: str) -> bool:
    """Whether a shell would run it: quotes are closed, and no line is to follow."""
    if text.endswith("\\"):
        return False
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True
