"""Verifies exactly-once from the topics alone: every committed input is once in the output or the dead letters.

It shares no code with the worker's source, sink, articles and rules, so a defect there cannot hide itself: headers,
metadata and ids are parsed here, as the schemas say. It shares `operate.inspector` and what that builds on: how to reach
the broker and how to read a message. In one of these the verifier is not independent: which offsets a batch spans that
the client cannot unpack (`worker.kafka.ranges`). If that were wrong, readable records could become dead letters
unnoticed. Another way to find out would need another Kafka client, so tests/kafka/test_unreadable_batch.py compares it
with batches of known size.
"""
