"""The command line: `gemmtune …`. `tuner.exits` lists the exit codes, the same for every command."""

from tuner.cli.app import main

__all__ = ["main"]
