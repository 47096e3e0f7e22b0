"""The inference room: articles to tokens, checkpoints to ONNX graphs, batches of windows to labels.

Knows nothing of Kafka, settings or articles' fate. No error of ONNX Runtime, tokenizers or
safetensors leaves it unmapped.

    tokenizer.py    texts -> ids and character spans
    tokenizer_files.py  the files of a checkpoint -> its fast tokenizer
    special_tokens.py  a tokenizer -> one to which every text is only text
    checkpoint.py   a Hugging Face folder: config, labels, weights read one at a time, digest
    labels.py       the ways to write label names, read as one
    families.py     what each encoder family calls its weights: the table
    graph.py        weights -> ONNX graph; what differs between devices is left to a form
    forms.py        what a form must say
    catalogue.py    the forms for each device, fastest first
    selection.py    which of them runs a model here, and why
    padded.py       float32, windows padded to the longest: for models that are ONNX already, and for CUDA
    gathered.py     float32 on CPUs without OpenVINO, padded in attention only
    int8.py         int8 on CPUs with VNNI or AMX
    openvino.py     bf16 on CPUs with AMX or AVX512-BF16, float32 on the others
    packed.py       fp16 on CUDA, without padding
    gate/           what a reduced precision must pass before it may serve
    onnxfile.py     writes the ONNX file and its weights beside it
    onnxfolder.py   a folder with a model that is ONNX already
    external.py     such a model between our inputs and our answers
    device.py       which device, how many cores, how a session is opened
    first_run.py    a session that is not safe for threads until it has run once
    openvino_session.py  OpenVINO: whether it is here, and a model opened on it
    model.py        a folder -> a graph on disk, in the form that was chosen
    cache.py        where graphs are kept, each built once
    engine.py       batch -> labels and scores, or failures, window by window
    lanes.py        a few threads with a bounded queue, polled by one owner
"""
