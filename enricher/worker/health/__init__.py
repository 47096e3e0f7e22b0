"""The worker's health over HTTP: probes, metrics, and the status page.

Read-only: nothing can be changed through the port. This package reads counters, snapshots and the watchdog; it knows neither
Kafka nor the model.
"""
