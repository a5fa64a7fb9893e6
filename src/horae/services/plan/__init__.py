"""Plans: what a change of definitions would do, and applying exactly that."""
