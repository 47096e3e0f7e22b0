"""Static int8 for encoders: ranges from unlabelled text (calibrate), kept as a recipe, written into a graph (qdq).

NumPy and ONNX only. Knows nothing about which variant serves (run/selection.py) and never sees a gold set.
"""
