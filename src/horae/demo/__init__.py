"""The demonstration: sample jobs, a past for them that the engine really ran on simulated time, and the live present.

tour.py       the three jobs of `horae demo --tour`
world.py      the jobs of the world, and what they do
history.py    weeks of its past, lived through in seconds
"""
