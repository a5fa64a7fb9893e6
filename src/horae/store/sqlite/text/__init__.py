"""Execution of users' SQL text on SQLite: child processes, the authorizer, the order of writers."""
