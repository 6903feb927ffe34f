"""Answering: which config to run for a problem, and why."""
