"""Job files in TOML: read, printed, described by a JSON Schema."""
