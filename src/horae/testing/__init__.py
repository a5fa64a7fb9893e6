"""What tests are built from: simulated time for your own jobs, a clock to set by hand, the contract of stores."""

from horae.testing.clock import ManualClock
from horae.testing.faults import Faults
from horae.testing.simulation import Simulation, Started

__all__ = ["Faults", "ManualClock", "Simulation", "Started"]
