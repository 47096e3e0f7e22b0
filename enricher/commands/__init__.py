"""The commands beside `run` and `enrich`, one room each: typer-compatible functions that `enricher.cli` registers.

They raise `FatalError`; exit codes and the words around them are the cli's. What talks to Kafka is in `enricher.kafka`.
"""
