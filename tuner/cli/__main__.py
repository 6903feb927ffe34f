"""`python -m tuner.cli` is `gemmtune`."""

from tuner.cli import main

main()
