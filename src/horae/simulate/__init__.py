"""Simulation of a span of time that is still to come, by the real engine on simulated time.

Definitions come from a catalog, a server or files. Every task is replaced by a stand-in that takes as long as its job
took before and ends as it did. None of the user's code runs, and nothing is written anywhere. The result is measured:
load, peaks, waits, what was skipped or missed, and which windows would flatten the peaks.
"""
