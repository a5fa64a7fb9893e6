"""The live half: the only room with a clock and tasks. Each loop reads, asks core, commits, announces."""
