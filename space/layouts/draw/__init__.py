"""Layouts as pictures: each function returns one SVG document."""
