"""Verification of the audit trail."""
