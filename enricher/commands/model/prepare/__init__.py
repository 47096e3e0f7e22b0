"""`enricher model prepare`: any checkpoint -> a self-contained folder that a worker runs, gate report included."""
