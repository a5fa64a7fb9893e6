"""SQL statements, executed for one principal by the service that every front end uses."""
