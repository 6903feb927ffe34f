"""Problem kinds: one module each; `space.registry` lists them."""
