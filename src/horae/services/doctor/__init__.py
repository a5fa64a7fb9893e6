"""The doctor: checks of a catalog and of its environment."""
