"""The operations of the API, grouped by subject."""
