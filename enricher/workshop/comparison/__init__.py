"""Compares the findings of two models: `sampling` and `offset_ranges` get articles, `answers` runs a model on them.

`matching` finds the changes within an article, `figures` counts them over all, with intervals, and judges.
"""
