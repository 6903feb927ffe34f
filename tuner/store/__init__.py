"""The store: studies, measurements and bests in a SQL database. `store.Store` is the way in."""
