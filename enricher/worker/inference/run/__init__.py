"""Runs a graph: chooses the variant, gets its graph on disk, and turns batches into labels and scores.

selection.py  the variants for each device, and which of them runs a model here, and why
model.py      a folder -> a graph on disk, in the chosen variant
engine.py     batch -> the answers of the heads; failures window by window, and in halves where memory runs out
advice.py     the windows that suit a model, from `enricher.json` in its folder
"""
