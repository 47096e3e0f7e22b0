"""The quality gate: compares a reduced precision with fp32, on labelled text.

gold.py          reads the labelled text
runs.py          runs the text through one variant, in the worker's own pipeline, in batches of several kinds
scoring.py       counts entities by exact span, with intervals from a bootstrap
measure.py       compares two runs: entities, classes or vectors
verdict.py       decides from the figures: passed or failed, with reasons
quality_gate.py  says which of these steps each kind of head needs, runs them, and makes the report
report.py        is the report's schema; the worker reads a part of it (checkpoint/gate_report.py)
"""
