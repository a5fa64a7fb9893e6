"""Output on a terminal: tables, charts, times, colours."""
