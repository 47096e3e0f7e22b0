"""A streaming enrichment worker: articles from Kafka, entities to Kafka, exactly once, with the model in the process."""
