"""A model's folder on disk. Builds nothing and runs nothing.

folder.py        a Hugging Face folder: configuration, head, digest, and weights one at a time
configuration.py config.json: what determines the graph, and the kind of the head (worker/heads)
weight_names.py  the weights of a graph, and the refusal of others that answers may depend on
same_encoder.py  whether two checkpoints have the same encoder
onnx_folder.py   a folder whose model is ONNX already
families.py      what each encoder family calls its weights
links.py         symbolic links that lead out of the folder are refused
gate_report.py   the result in a report of the quality gate, as a worker reads it
"""
