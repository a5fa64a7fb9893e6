"""The conformance kit for stores: the contract as a test class, and a model store to compare with."""
