"""`enricher publish`: JSON lines into the input topic. `lines` reads, `rate` limits, `command` sends and counts."""
