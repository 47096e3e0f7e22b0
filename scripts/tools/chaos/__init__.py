"""The fault matrix: three workers, three Kafka nodes, a proxy between them, and one fault after another.

Nothing here ships with the worker, and the worker has no code for it.
"""
