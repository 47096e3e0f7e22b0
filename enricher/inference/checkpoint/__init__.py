"""A model's folder on disk. Builds nothing and runs nothing.

folder.py       a Hugging Face folder: configuration, labels, digest, and weights one at a time
onnx_folder.py  a folder whose model is ONNX already
labels.py       the ways in which models write label names, all read as IOB2
families.py     what each encoder family calls its weights
links.py        symbolic links that lead out of the folder are refused
gate_report.py  the quality gate's report: its schema, reading and writing
"""
