"""The PostgreSQL driver: a catalog in a database that any number of machines share."""
