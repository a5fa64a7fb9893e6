"""The former place of the contract of stores, which is `horae_store_tests.contract.store_contract` now."""

try:
    from horae_store_tests.contract.store_contract import StoreContract
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "horae_store_tests":
        raise
    raise ModuleNotFoundError(
        "StoreContract is in a distribution of its own now: pip install horae-store-tests", name=error.name
    ) from error

__all__ = ["StoreContract"]
