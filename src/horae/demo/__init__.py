"""The demonstration: sample jobs, a history that the engine really ran on simulated time, and live runs after it.

tour.py       the three jobs of `horae demo --tour`
world.py      the sample jobs, and what they do
history.py    weeks of their history, simulated in seconds
"""
