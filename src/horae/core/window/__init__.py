"""Windows: when a run starts around its scheduled time, and why."""
