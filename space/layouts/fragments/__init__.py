"""Fragments: which thread holds which element of an operand in which register."""

from space.layouts.fragments.fragment import Fragment
from space.layouts.fragments.named import fragment_named

__all__ = ["Fragment", "fragment_named"]
