"""The dashboard: one HTML page that the service renders, without scripts."""
