"""Draws pictures of the main pages of a running service into docs/pictures/.

gemmtune serve --demo &
python -m benchmarks.dashboard.pictures --url http://127.0.0.1:8643
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from benchmarks.dashboard.browser import chromium, tab

_FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
_PROBLEM: Final = "/problem?key=gemm:bf16,bf16,bf16,f32:nt:4096x4096x4096:b1:none"
#: Name, path, what has to be there, scheme, and the height that is drawn.
_PICTURES: Final = (
    ("problem", _PROBLEM, "#changes chart-changes .says", "light", 1720),
    ("problems", "/problems", "chart-scatter canvas", "light", 1180),
    ("explain", "/explain?knobs=tile_n=256,stages=5,epilogue=direct", "#verdict h2", "dark", 900),
    ("ladder", "/ladder?n=6144&k=4096", "chart-lines canvas", "dark", 760),
)


def main() -> None:
    """Writes one PNG a page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--url", default="http://127.0.0.1:8643")
    given = options.parse_args()
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for name, path, shown, scheme, height in _PICTURES:
            view = {"viewport": {"width": 1280, "height": height}, "color_scheme": scheme, "reduced_motion": "reduce"}
            with tab(browser, given.url + path, **view) as page:
                page.wait_for_selector(shown, timeout=120_000)
                page.wait_for_timeout(3_000)
                page.screenshot(path=_FOLDER / f"{name}.png")
                print(_FOLDER / f"{name}.png")


if __name__ == "__main__":
    main()
