"""Live updates as server-sent events."""
