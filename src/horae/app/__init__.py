"""The composition root: `Horae`, and the one place that names concrete stores."""

from horae.app.stores import Migrated, make_driver, make_store, migrate_store

__all__ = ["Migrated", "make_driver", "make_store", "migrate_store"]
