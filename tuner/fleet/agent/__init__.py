"""The agent: a worker that dials out. It asks for rounds, runs them on its device and reports."""
