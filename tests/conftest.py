"""Shared set-up: hypothesis without deadlines, because machines differ."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("gemmtune", deadline=None)
settings.load_profile("gemmtune")
