"""The catalog in a PostgreSQL database, shared by any number of machines."""
