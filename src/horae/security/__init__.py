"""Who somebody is, what they may do, what must stay secret, and whether the trail of it all is still whole.

Rules are `core.access`'s and `core.trail`'s; this room asks the vault, hashes, encrypts and looks. It writes audit
rows, and secrets under another key.
"""
