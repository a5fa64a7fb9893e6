"""How one attempt does its work: in the event loop, in a thread, in a process of its own; and what it may reach."""
