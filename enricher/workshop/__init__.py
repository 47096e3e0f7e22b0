"""The model workshop, `enricher model`: prepare, check, evaluate, compare, inspect and tune models."""
