"""Articles to tokens, checkpoints to ONNX graphs, batches of windows to labels.

Knows nothing of Kafka, of settings, or of what happens to an article afterwards. No error of ONNX Runtime, tokenizers or
safetensors leaves this package unmapped. Imports go up this list only:

    checkpoint/    a model's folder on disk: configuration, labels, weights, digest, gate reports
    device/        the device, its cores, and sessions on it
    tokenizer/     article texts -> token ids and character spans
    graph/         checkpoint -> ONNX graph, in one of several variants; a recipe -> an int8 graph
    run/           which variant serves, and the engine that turns batches into labels

`workshop/` makes the recipe of int8 and checks that a reduced precision loses no quality.
"""
