"""The responses of operations, as plain values."""
