"""The store: the code that keeps one catalog in SQLite or PostgreSQL, behind the verbs of `store.protocols`."""
