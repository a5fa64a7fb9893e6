"""The interactive shell of `horae sql`."""
