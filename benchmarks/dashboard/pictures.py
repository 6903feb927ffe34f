"""`python -m benchmarks.dashboard.pictures` draws the main pages, in a demo of its own, into docs/pictures/."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.command import as_command
from benchmarks.dashboard.browser import chromium, tab
from benchmarks.serving import process

_FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
_PROBLEM: Final = "/problem?key=gemm:bf16,bf16,bf16,f32:nt:4096x4096x4096:b1:none"
#: Name, path, what is pressed in turn, what has to be there, scheme, and the height that is drawn.
_PICTURES: Final = (
    ("campaign", "/campaign?id=1", (), ".badge:text-is('finished')", "light", 700),
    ("problem", _PROBLEM, ("#funnel button",), "#changes chart-changes .says", "light", 1386),
    ("layouts", _PROBLEM, ("text=Its layouts",), ".drawing svg", "light", 680),
    ("explain", "/explain?knobs=tile_n=256,stages=5,epilogue=direct", (), "#verdict h2", "dark", 900),
    ("ladder", "/ladder?n=6144&k=4096", (), "chart-lines canvas", "dark", 760),
    ("problems", "/problems", (), "chart-scatter canvas", "light", 1222),
)  # fmt: skip


def main() -> None:
    """Writes one PNG a page."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    demo = [sys.executable, "-m", "gemmtune", "serve", "--demo", "--port"]
    with tempfile.TemporaryDirectory() as folder, process(demo, Path(folder) / "demo.log") as service:
        draw(f"http://127.0.0.1:{service.port}")


def draw(url: str) -> None:
    """Draws the pages of a service."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for name, path, pressed, shown, scheme, height in _PICTURES:
            view = {"viewport": {"width": 1280, "height": height}, "color_scheme": scheme, "reduced_motion": "reduce"}
            with tab(browser, url + path, **view) as page:
                for selector in pressed:
                    page.click(selector, timeout=300_000)
                page.wait_for_selector(shown, timeout=300_000)
                # What was pressed is answered, and everything is drawn.
                page.wait_for_timeout(8_000)
                page.screenshot(path=_FOLDER / f"{name}.png")
                print(_FOLDER / f"{name}.png")


if __name__ == "__main__":
    as_command(main)
