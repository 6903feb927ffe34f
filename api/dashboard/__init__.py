"""The dashboard: one page of HTML, made by the service itself, without scripts."""
