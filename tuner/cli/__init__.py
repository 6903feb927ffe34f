"""The command line, one module per command. `tuner.exits` lists the exit codes, the same for every command."""
