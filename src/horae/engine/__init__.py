"""The engine of a node: the loops that claim, run and settle runs, send heartbeats and do maintenance.

Core decides without a clock; this package has the clock and the background tasks. Each loop reads rows, asks core to
decide, commits, and emits events.
"""
