"""The HTTP service. `app.create_app(store)` makes it, `server.serve` runs it."""
