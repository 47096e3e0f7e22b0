"""The benchmark behind scripts/bench gpu: the CUDA variants against PyTorch and ONNX Runtime's own optimizer."""
