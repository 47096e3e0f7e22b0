"""The benchmark behind scripts/bench-model: our forms against ONNX Runtime's stock provider and optimizer, in one run."""
