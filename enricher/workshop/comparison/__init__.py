"""Compares the findings of two models: `sampling` gets articles, `model_answers` runs a model on them.

`matching` finds the changes within an article; `figures` counts them over all articles, with intervals, and judges.
"""
