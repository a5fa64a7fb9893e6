"""The part that decides: pure functions from values to values, with no clock, no chance and no I/O.

Same input, same output, on every machine and in every process. Zone files are read once, on first use, from the
pinned `tzdata` package; after that nothing here touches the world.
"""
