"""The model store: the whole contract without SQL, written for reading, not for speed."""
