"""Reference outputs of heads for classes and vectors, from transformers: tests compare the graphs with them.

folders.py   checkpoints with such heads, on the encoders of tests/data/reference; the tests make the same ones
__main__.py  runs them through transformers, window by window, and writes the arrays
"""
