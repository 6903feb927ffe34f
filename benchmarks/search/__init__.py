"""Share of the best against number of measurements: our search and its rivals on the same recorded data."""
