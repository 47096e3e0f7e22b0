"""Metrics, traces and logs: one list of instruments, and the ways out of the process. The worker knows none of it."""
