"""Executors of attempts: in the event loop, in threads, in processes; and the `Run` object that tasks use."""
