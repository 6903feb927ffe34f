"""What users import: an HTTP client. The service and the tuner live in their own packages."""

from gemmtune.client import Client, GemmtuneError

__all__ = ["Client", "GemmtuneError"]
