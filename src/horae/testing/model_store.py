"""The former place of the model store, which is `horae_store_tests.model.store` now."""

try:
    from horae_store_tests.model.store import ModelStore
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "horae_store_tests":
        raise
    raise ModuleNotFoundError(
        "ModelStore is in a distribution of its own now: pip install horae-store-tests", name=error.name
    ) from error

__all__ = ["ModelStore"]
