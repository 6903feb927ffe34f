"""Evidence: studies, measurements, bests and campaigns in a SQL database. `store.Store` is the way in."""
