"""Static int8 for encoders: finds ranges on unlabelled text, and keeps them as a recipe, which `graph/int8.py` applies.

NumPy and ONNX only. It knows nothing about which variant serves (run/selection.py) and never sees a gold set.
"""
