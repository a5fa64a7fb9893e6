"""The SQLite driver: a catalog in one file, shared by any number of processes on one machine."""
