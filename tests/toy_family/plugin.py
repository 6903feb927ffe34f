"""Importing this module registers the family: what a worker's child process does."""

from __future__ import annotations

from tests import toy_family

toy_family.join()
