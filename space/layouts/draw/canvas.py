"""A small SVG writer: labelled cells, frames, text, and distinct colours."""

from __future__ import annotations

import colorsys
from html import escape
from typing import Final

_FONT: Final = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
#: Width of one character in units of the font size.
_CHARACTER: Final = 0.61
INK: Final = "#1c2430"
FAINT: Final = "#6b7684"
PAPER: Final = "#ffffff"
UNUSED: Final = "#eef1f4"
WARNING: Final = "#c62828"


class Canvas:
    """Collects shapes; `svg()` returns the document, which is as large as the drawing."""

    def __init__(self, title: str, note: str = "") -> None:
        self._title, self._shapes = title, [""]
        self._width = self._height = 0.0
        self.text(PAD, PAD + 6, title, size=15, bold=True)
        if note:
            self.text(PAD, PAD + 24, note, size=11, fill=FAINT)
        #: Top of the drawing, below title and note.
        self.top = PAD + (44 if note else 28)

    def cell(
        self, x: float, y: float, width: float, height: float, fill: str, label: str = "", hint: str = "",
        size: float = 9, stroke: str = "#ffffff",
    ) -> None:  # fmt: skip
        """A filled cell with a centred label that shrinks to fit, and a tooltip."""
        self._extend(x + width, y + height)
        shape = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{stroke}"'
        self._shapes.append(f"{shape}><title>{escape(hint)}</title></rect>" if hint else f"{shape}/>")
        if label:
            fits = min(size, (width - 2) / (_CHARACTER * len(label)))
            ink = INK if _luminance(fill) > 0.45 else PAPER
            self._text(x + width / 2, y + height / 2 + fits * 0.35, label, size=fits, fill=ink, anchor="middle")

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """An outline over the cells below it."""
        self._extend(x + width, y + height)
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="none" stroke="{INK}" '
            f'stroke-width="1" class="frame"/>'
        )

    def text(
        self, x: float, y: float, text: str, *, size: float = 10, fill: str = INK, anchor: str = "start",
        bold: bool = False,
    ) -> None:  # fmt: skip
        """One line of text; `y` is its baseline."""
        self._text(x, y, text, size=size, fill=fill, anchor=anchor, bold=bold, themed=True)

    def _text(
        self, x: float, y: float, text: str, *, size: float, fill: str, anchor: str, bold: bool = False,
        themed: bool = False,
    ) -> None:  # fmt: skip
        length = _CHARACTER * size * len(text)
        self._extend(x + {"start": length, "middle": length / 2, "end": 0}[anchor], y + size * 0.3)
        more = (' font-weight="bold"' if bold else "") + (_class(fill) if themed else "")
        self._shapes.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:.3g}" fill="{fill}" text-anchor="{anchor}"{more}>'
            f"{escape(text)}</text>"
        )

    def svg(self) -> str:
        width, height = self._width + PAD, self._height + PAD
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{_FONT}" role="img">\n'
            f"<title>{escape(self._title)}</title>\n"
            f'<rect width="100%" height="100%" fill="{PAPER}"{_class(PAPER)}/>' + "\n".join(self._shapes) + "\n</svg>\n"
        )

    def _extend(self, x: float, y: float) -> None:
        self._width, self._height = max(self._width, x), max(self._height, y)


#: Classes of colours that a page's scheme may replace; labels of cells keep theirs, because the cells do.
_CLASSES: Final = {INK: "ink", FAINT: "faint", PAPER: "paper", UNUSED: "unused", WARNING: "warning"}
#: Margin around the drawing.
PAD: Final = 16


def color_of(number: int, count: int, shades: int = 1) -> str:
    """The colour of item `number` of `count`; `shades` neighbours share a hue and differ in lightness."""
    hues = max(-(-count // shades), 1)
    hue, shade = number // shades % hues / hues, number % shades
    lightness = 0.80 - 0.30 * shade / max(shades - 1, 1) if shades > 1 else 0.72
    red, green, blue = colorsys.hls_to_rgb((hue + 0.57) % 1, lightness, 0.62)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def _class(color: str) -> str:
    return f' class="{_CLASSES[color]}"' if color in _CLASSES else ""


def _luminance(color: str) -> float:
    red, green, blue = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
