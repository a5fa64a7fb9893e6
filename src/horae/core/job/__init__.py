"""Definitions of jobs: tasks, settings, policies, identities."""
