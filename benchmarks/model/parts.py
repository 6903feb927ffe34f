"""Parts: blocks that were measured one by one, joined under the facts that their runs share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.command import reading
from benchmarks.published import as_table, begun, joined_facts, shared_facts


@dataclass
class Part:
    """What runs have measured.

    Attributes:
        commands: facts of each run, by its command.
        blocks: tables of each block, by its name.
    """

    commands: dict[str, dict[str, str]] = field(default_factory=dict)
    blocks: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Part:
        """The part that an earlier run kept.

        Raises:
            WrongInput: the file is none.
        """
        with reading(path, "a part that --json kept"):
            return cls(**json.loads(path.read_text()))

    def begin(self, command: str, facts: dict[str, str]) -> None:
        """Notes a run that adds blocks.

        Raises:
            Unpublishable: they could not stand in one table with the blocks of the runs before.
        """
        if not self.blocks:
            self.commands.clear()
        self.commands.update(begun(self.commands, command, facts))

    def text(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self))

    def paragraphs(self) -> str:
        """The tables of all blocks."""
        return "\n\n".join(self.blocks.values())


def merged(files: Sequence[Path], out: Path | None) -> int:
    """Prints the blocks of all parts; 1 where their runs can't share a table or a result is wrong.

    Args:
        out: where to write them, with the facts that the runs share.

    Raises:
        Unpublishable: they are to be written, and a file is not tracked by git.
    """
    parts = [Part.read(path) for path in files]
    text = "\n\n".join(part.paragraphs() for part in parts)
    print(text)
    named = [name for part in parts for name in part.blocks]
    if len(set(named)) < len(named):
        print("a block is in more than one part: merge parts that share none; nothing is written")
        return 1
    runs = [facts for part in parts for facts in part.commands.values()]
    if shared_facts(runs) is None:
        print("the parts were not measured by one program on one model of device: nothing is written")
        return 1
    if out and (facts := joined_facts("model", runs, files)):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("\n\n".join([as_table(facts), text]) + "\n")
    return int("WRONG |" in text)
