"""The operations that a principal may request of a catalog, checked and audited, behind every front end."""
