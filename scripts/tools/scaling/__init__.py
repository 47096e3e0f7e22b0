"""Simulates a day of news under an autoscaler: with the scaler's own policy, and with KEDA's Kafka scaler.

`day`: arrivals. `pods`: how workers start and share partitions. `autoscaler`: what Kubernetes and KEDA do with a metric.
`metrics`: the metrics. `simulation`: the loop, in steps of one second. Nothing here is measured.
"""
