"""The model workshop, `enricher model`: prepare a folder, check a precision, calibrate int8, inspect, tune."""
