"""Layouts as pictures: each function returns one SVG document."""

from space.layouts.draw.fragments import fragment_svg, scale_factors_svg
from space.layouts.draw.memory import access_svg, boxes_svg, swizzle_svg
from space.layouts.draw.words import word_svg

__all__ = ["access_svg", "boxes_svg", "fragment_svg", "scale_factors_svg", "swizzle_svg", "word_svg"]
