"""A model's folder on disk. Builds nothing and runs nothing.

folder.py        a Hugging Face folder, or one whose model is ONNX already: head, digest, weights one at a time
configuration.py config.json, and what each encoder family calls its weights; others that answers may depend on are refused
same_encoder.py  whether two checkpoints have the same encoder
gate_report.py   the result in a report of the quality gate, as a worker reads it
"""
