"""Execution of users' SQL text on PostgreSQL: its roles and functions, its limits, and the end of its sessions."""
