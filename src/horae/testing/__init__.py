"""The testing kit: simulated time for your own jobs, a settable clock, and a store that fails by a seed."""

from horae.testing.clock import ManualClock
from horae.testing.faults import Faults
from horae.testing.simulation import Simulation, Started

__all__ = ["Faults", "ManualClock", "Simulation", "Started"]
