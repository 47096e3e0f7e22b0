"""Articles to tokens, checkpoints to ONNX graphs, batches of windows to labels.

Knows nothing of Kafka, settings or articles' fate. No error of ONNX Runtime, tokenizers or safetensors leaves it unmapped.

    checkpoint/  a model's folder as it lies on disk
    tokenizer/   article texts -> token ids and character spans
    graph/       checkpoint -> ONNX graph, in one of several variants
    run/         device, sessions, and the engine that turns batches into labels
    gate/        what a reduced precision must pass before it may serve
"""
