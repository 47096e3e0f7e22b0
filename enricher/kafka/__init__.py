"""The Kafka adapters: a consumer-group source and a transactional sink. Knows the client, not the worker."""
