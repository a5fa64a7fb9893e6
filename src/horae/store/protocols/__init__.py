"""The protocols of a store: its verbs with their contracts."""
