"""Makes the Grafana dashboard from the list of instruments, and shows its queries answered by a real Prometheus."""
