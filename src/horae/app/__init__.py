"""The public face of a program, `Horae`, and the composition root, the one package that names concrete stores."""

from horae.app.stores import MigrationResult, make_driver, make_store, migrate_store

__all__ = ["MigrationResult", "make_driver", "make_store", "migrate_store"]
