"""`enricher model`: prepare a folder, check a precision, inspect, tune."""
