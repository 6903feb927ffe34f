"""Studying: which candidates to try next, how to try them, and who wins."""
