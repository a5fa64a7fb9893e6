"""Reports of runs, from rows to sentences."""
