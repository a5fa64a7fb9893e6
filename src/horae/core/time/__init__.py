"""Instants, durations and time zones."""
