"""A model's folder on disk. Builds nothing and runs nothing.

folder.py        a Hugging Face folder: configuration, head, digest, weights one at a time; links that lead out are refused
configuration.py config.json: what determines the graph, and the kind of the head (worker/heads) families.py      the names
of each encoder family's weights, and the refusal of other weights that answers may depend on same_encoder.py  whether two
checkpoints have the same encoder onnx_folder.py   a folder whose model is ONNX already gate_report.py   the result in a
report of the quality gate, as a worker reads it
"""
