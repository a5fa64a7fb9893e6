"""The arguments of every command."""
