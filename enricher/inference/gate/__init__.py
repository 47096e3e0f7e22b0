"""The quality gate: a reduced precision against fp32, on labelled text.

gold.py     reads the labelled text
batches.py  ways to put the same windows into batches
runs.py     runs the text through one variant, in the worker's own pipeline
measure.py  compares two runs
verdict.py  what the figures mean: passed or failed, with reasons
overlap.py  sentences that two sets of texts share: the gold set must not be what int8 was calibrated on
check.py    does all of it, and makes the report (checkpoint/gate_report.py)
"""
