"""Views: what the store holds, arranged for pages and programs. Nothing here writes."""
