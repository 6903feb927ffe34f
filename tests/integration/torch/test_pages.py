"""Blocks of the documentation that need PyTorch, but no GPU, run as they are printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")
pytest.importorskip("transformers", reason="transformers is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import configure
from tests.integration.torch.test_model_shapes import MODELS
from tests.journeys.terminal import Terminal
from tests.journeys.test_pages import assert_as_printed
from tests.pages import PAGES, PYTORCH, Block, blocks

NEEDY = [block for page in PAGES for block in blocks(page) if block.mark == PYTORCH]


@pytest.mark.parametrize("block", NEEDY, ids=lambda block: block.name)
def test_a_block_works_as_it_is_printed(block: Block, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    config, _ = MODELS["Llama 3 8B"]
    (tmp_path / "work" / "config.json").write_text(json.dumps(config))
    # What `configure` is given has to be there; nothing asks it.
    (tmp_path / "work" / "table.json").touch()
    (tmp_path / "work" / "bundle").mkdir()
    try:
        assert_as_printed(Terminal(tmp_path, {}, "").run([block]))
    finally:
        configure()
