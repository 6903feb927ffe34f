"""Share of the best against number of measurements: our search and parts of it on the same recorded data."""
