"""The composition root: the only place that connects settings with parts. Its modules, bottom up.

    kafka_clients.py   the settings of the Kafka clients
    formats.py         readers of articles and writers of records, and the schema registry of both
    loaded_tasks.py    the loaded model with the heads of all tasks, and the rules of its windows and batches
    workers.py         a worker, and its parts that telemetry and health read
    memory_runs.py     runs of a worker from memory to memory

Parts that only one command connects are connected in that command.
"""
