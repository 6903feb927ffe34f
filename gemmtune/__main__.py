"""`python -m gemmtune` is `gemmtune`."""

from gemmtune.hidden import imports

with imports():
    from gemmtune.command import main

main()
