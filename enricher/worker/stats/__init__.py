"""Counters, histograms and the snapshot of the worker: data and arithmetic only. Telemetry and health export them."""
