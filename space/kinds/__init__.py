"""Problem kinds: one module each; `space.kind` lists them."""
