"""Generates the Grafana dashboard from the list of instruments, and runs its queries against a real Prometheus."""
