"""Definitions as text, both ways: TOML, krontab and SQL. Pure."""
