"""What was counted (`counters.py`), counted by value (`histogram.py`), and how full everything is now (`snapshot.py`).

Data and arithmetic only. Exporting is telemetry's and health's.
"""
