"""Tools of the project's own; not part of the package."""
