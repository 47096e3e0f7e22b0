"""`enricher run`: the worker between two Kafka topics, as one process or as several under one parent."""
