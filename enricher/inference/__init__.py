"""The inference room: articles to tokens, checkpoints to ONNX graphs, batches of windows to labels.

Knows nothing of Kafka, settings or articles' fate. No error of ONNX Runtime, tokenizers or
safetensors leaves it unmapped.

    tokenizer.py    texts -> ids and character spans
    checkpoint.py   a Hugging Face folder: config, labels, weights read one at a time, digest
    families.py     what each encoder family calls its weights: the table
    graph.py        weights -> ONNX graph; what differs between devices is left to a form
    forms.py        what a form must say; the list of forms
    padded.py       the float32 form for the stock providers: windows padded to the longest
    onnxfile.py     writes the ONNX file and its weights beside it
    device.py       which device, how many cores, how a session is opened
    model.py        checkpoint -> graph on disk, built once
    engine.py       batch -> labels and scores, or failures, window by window
    lanes.py        a few threads with a bounded queue, polled by one owner
"""
