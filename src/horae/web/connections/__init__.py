"""Sockets and connections: limits on their number and their duration, TLS, disconnects."""
