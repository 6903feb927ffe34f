"""Kernel families, one folder or module each. `space.family` lists them."""
