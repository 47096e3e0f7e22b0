"""Checkpoint -> ONNX graph, in one of several variants: a layout of windows and a precision for one runtime.

builder.py      weights -> graph, operator by operator; the variant supplies what differs
heads.py        hidden states -> the outputs of one or several heads
weights.py      a checkpoint's weights as parts of a graph
variants.py     the Protocol of a variant
catalogue.py    the variants for each device, fastest first
packed_cuda.py  packed-fp16 and packed-cuda-fp32: CUDA, no padding
openvino.py     openvino-int8, openvino-bf16 and openvino-fp32: CPUs, through OpenVINO
packed_cpu.py   packed-fp32: CPUs without OpenVINO, padded only inside attention
padded.py       padded-fp32: windows padded to the longest
external.py     a model that is ONNX already, wrapped to have our inputs and outputs
onnx_file.py    writes the ONNX file, and its weights beside it
cache.py        built graphs on disk
"""
