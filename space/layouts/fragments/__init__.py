"""Fragments: which thread holds which element of an operand in which register."""
