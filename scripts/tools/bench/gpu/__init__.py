"""The benchmark behind scripts/bench-gpu: the CUDA variant against padded ONNX Runtime and PyTorch."""
