"""Verbs that create, claim and settle runs."""
