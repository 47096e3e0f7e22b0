"""Tries the broker's promises that exactly-once depends on, in a topic that is created for it and deleted afterwards.

Assumes only the protocol: what clients are told, and how long it may take. Does not use the worker's topics or group.
`promises` lists the promises; `enricher.operate.doctor` decides what a failure means for the operator.
"""
