"""The composition root: the only place that connects settings with parts. Its modules, bottom up.

    kafka_clients.py   the settings of the Kafka clients
    formats.py         what reads articles and writes records, and the schema registry of both
    loaded_tasks.py    the loaded model with the heads of all tasks, and the rules of its windows and batches
    workers.py         a worker, and what telemetry and health read of it
    memory_runs.py     runs of a worker from memory to memory

What only one command connects stands in that command.
"""
