"""`enricher schemas`: registers the schema of records, and checks how schemas change."""
