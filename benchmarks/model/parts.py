"""Parts: blocks that were measured one by one, joined under the facts that their runs share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.published import as_table, shared_facts


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
        """The part that an earlier run kept."""
        return cls(**json.loads(path.read_text()))

    def text(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self))

    def paragraphs(self) -> str:
        """The tables of all blocks."""
        return "\n\n".join(self.blocks.values())


def merged(parts: Sequence[Part], out: Path | None) -> int:
    """The blocks of all parts, under the facts that their runs share; 1 where they share none or a result is wrong."""
    facts = shared_facts([one for part in parts for one in part.commands.values()])
    text = "\n\n".join(part.paragraphs() for part in parts)
    print(text)
    if facts is None:
        print("the parts were not measured from one commit on one model of device: nothing is written")
        return 1
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("\n\n".join([as_table(facts), text]) + "\n")
    return int("WRONG |" in text)
