"""The search index: documents from the output topic, written so that the newest version of each is what it holds.

Each record carries its version (`enricher.version`), and the index refuses a write that is older than what it has. So
records may come again, in another order or from two indexers at once, and the index still ends up right; offsets need no
transaction.
"""
