"""Authentication by password, access checks, secrets, and verification of the audit trail.

The rules are in `core.access` and `core.audit`. This package reads the catalog, hashes, encrypts and compares. It
writes audit rows, seals, the audit key, the head file, and secrets encrypted under another key.
"""
