"""Plumbing: the watchdog, the wakeup and stop events of the loop, deadlines, repeated log lines, and device names."""
