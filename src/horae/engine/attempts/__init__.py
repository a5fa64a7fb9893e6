"""How one attempt is started, stopped and recorded."""
