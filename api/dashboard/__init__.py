"""The dashboard: pages that the browser renders from the API, served as they lie in the repository."""
