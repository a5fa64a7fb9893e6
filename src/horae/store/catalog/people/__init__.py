"""Verbs about users, rights, settings, secrets, sessions and the audit trail."""
