"""A model's folder as it lies on disk: config, labels, weights, digest. Builds nothing and runs nothing.

folder.py       a Hugging Face folder: config, labels, weights read one at a time, digest
onnx_folder.py  a folder with a model that is ONNX already
labels.py       the ways in which models write label names, read as one
families.py     what each encoder family calls its weights
links.py        symbolic links that would lead out of the folder
"""
