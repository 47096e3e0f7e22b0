"""The nemesis of the worker: three of them, three Kafka nodes, a proxy between, and one fault after another.

Nothing here ships with the worker, and nothing in the worker knows of it.
"""
