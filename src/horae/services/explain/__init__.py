"""Explanations of runs: why one starts when it does, waits, or lasts unusually long."""
