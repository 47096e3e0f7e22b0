"""Runs a graph: chooses the device and the variant, opens sessions, and turns batches into labels and scores.

device.py            which device, how many cores, how a session on it is opened
openvino_session.py  the same for OpenVINO
first_run.py         a session that is not safe for threads until it has run once
selection.py         which variant runs a model here, and why
model.py             a folder -> a graph on disk, in the variant that was chosen
engine.py            batch -> labels and scores, or failures, window by window
memory.py            a batch that runs out of memory, in halves
advice.py            what suits a model, from `enricher.json` in its folder
tuning.py            what `enricher model tune` found for this machine
"""
