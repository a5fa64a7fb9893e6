"""The desk: every question that a surface can put to a catalog, with typed parameters and plain answers.

HTTP, the pages and the command line ask here, and nowhere else; a server's desk is asked over the wire in the same
words. `operations.py` is the list of questions: routes, OpenAPI, the client and the reference are made of it.
"""
