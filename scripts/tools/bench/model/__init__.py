"""The benchmark behind `scripts/bench model`: our variants against ONNX Runtime's stock provider and optimizer."""
