"""Schedules: the scheduled times of jobs."""
