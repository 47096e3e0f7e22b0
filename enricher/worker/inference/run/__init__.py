"""Runs a graph: chooses the variant, gets its graph on disk, and turns batches into labels and scores.

selection.py     which variant runs a model here, and why
model.py         a folder -> a graph on disk, in the chosen variant
engine.py        batch -> labels and scores, with failures window by window
head_outputs.py  the outputs of a run -> the answers of its heads
memory.py        what to do when a batch runs out of memory
advice.py        the windows that suit a model, from `enricher.json` in its folder
"""
