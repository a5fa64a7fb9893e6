"""Verbs that define and change jobs."""
