"""The durable truth: one catalog, kept in SQLite or PostgreSQL, behind one protocol of few verbs (`port`)."""
