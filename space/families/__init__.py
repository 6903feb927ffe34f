"""Kernel families, one folder or module each. `space.registry` lists them."""
