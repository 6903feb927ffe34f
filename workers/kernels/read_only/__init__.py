"""A kernel that only reads: the floor under every kernel that has to."""
