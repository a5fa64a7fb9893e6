"""Changes of definitions: what differs, when a change takes effect, which runs move."""
