"""A day of news against an autoscaler, simulated: the scaler's own policy and speeds, and KEDA's Kafka scaler beside it.

`day` says when articles come, `pods` how workers start and share partitions, `autoscaler` what Kubernetes and KEDA do with a
metric, `metrics` the metrics, `simulation` the loop. Time goes in seconds; nothing here is measured.
"""
