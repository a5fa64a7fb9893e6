"""The contract that every store keeps, by subject."""
