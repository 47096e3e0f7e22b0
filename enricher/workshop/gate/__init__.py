"""The quality gate: a reduced precision against fp32, on labelled text.

gold.py     reads the labelled text; gold_classes.py: texts with classes, or without labels
batches.py  ways to put the same windows into batches
runs.py     runs the text through one variant, in the worker's own pipeline; rows.py: heads with a row per window
measure.py  compares two runs about entities; classes.py and vectors.py: about those
verdict.py  what the figures mean: passed or failed, with reasons; verdict_rows.py: for classes and vectors
overlap.py  sentences that two sets of texts share: the gold set must not be what int8 was calibrated on
kinds.py    which of these each kind of head needs
check.py    does all of it, and makes the report
report.py   its schema; the worker reads a part of it (checkpoint/gate_report.py)
"""
