"""The quality gate: compares a reduced precision with fp32, on labelled text.

gold.py          reads the labelled text
batches.py       puts the same windows into batches in several ways
runs.py          runs the text through one variant, in the worker's own pipeline
measure.py       compares two runs about entities; classes.py and vectors.py: about those
verdict.py       decides from the figures: passed or failed, with reasons
overlap.py       finds sentences that two sets of texts share: the gold set must not be what int8 was calibrated on
kinds.py         says which of these each kind of head needs
quality_gate.py  does all of it, and makes the report
report.py        is the report's schema; the worker reads a part of it (checkpoint/gate_report.py)
"""
