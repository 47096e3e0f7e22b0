"""`enricher model tune`: how large batches should be and how many run at once, measured on this machine."""
