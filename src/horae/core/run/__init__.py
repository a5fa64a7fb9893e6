"""Runs: which are due, how they overlap, how attempts end, what a run waits for."""
