"""Rehearsal: a span of time that is still to come, run by the real engine on simulated time.

Definitions come from a catalog, a server or files; every task is replaced by a stand-in that takes the time its job
took before and ends as it did. Nothing of the user's own is run, and nothing is written anywhere. What the engine then
did is measured: load, peaks, waits, what was skipped or missed, and which windows would flatten the peaks.
"""
