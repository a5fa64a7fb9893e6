"""The verbs of the store, written once for every database."""
