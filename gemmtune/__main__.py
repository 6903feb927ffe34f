"""`python -m gemmtune` is `gemmtune`."""

from gemmtune.command import main

main()
