"""The decision logic: values and pure functions, with no clock, no randomness and no I/O.

The same input gives the same output on every machine and in every process. The one exception to "no I/O" is zone files:
each is read once, on first use, from the pinned `tzdata` package.
"""
