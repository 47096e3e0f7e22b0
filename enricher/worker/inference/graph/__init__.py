"""Checkpoint -> ONNX graph, in one of several variants: a layout of windows and a precision for one runtime.

builder.py      weights -> graph, operator by operator, with its heads; the variant supplies what differs
bert.py         the encoder of BERT and its families
deberta.py      the encoder of DeBERTa-v2 and v3: that of BERT, with attention by distance
modernbert.py   the encoder of ModernBERT
weights.py      nodes that use a checkpoint's weights, and nodes for places of tokens within a window
variants.py     the Protocol of a variant
packed_cuda.py  packed-fp16 and packed-cuda-fp32: CUDA, no padding
padded.py       padded-fp32; packed-fp32, padded only inside attention; openvino-int8, openvino-bf16 and openvino-fp32
int8.py         the recipe of an int8 graph, and its application to a float32 graph
external.py     a model that is ONNX already, wrapped to have our inputs and outputs, or converted to float16
graph_files.py  writes the ONNX file and its weights beside it, and finds built graphs on disk
"""
