"""The API: every operation that a client can call on a catalog, with typed requests and responses.

HTTP, the web pages and the command line use it and nothing else. A server offers the same operations over HTTP.
`operations.py` lists all operations: the routes, the OpenAPI document, the client and the reference are made from it.
"""
