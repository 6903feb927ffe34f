"""The command line, one module per command. All share the exit codes in `tuner.exits`."""
