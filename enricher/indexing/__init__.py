"""Writes documents from the output topic into a search index, so that it holds the newest version of each.

Each record carries its version (`enricher.version`), and the index refuses a write that is older than the document it has.
So records may come again, in another order or from two indexers at once, and the index still becomes right; offsets need no
transaction.
"""
