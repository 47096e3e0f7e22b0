"""Metrics, traces and logs: the list of instruments, and how they leave the process."""
