"""Workers that a team would write instead of ours: what the bench compares with.

Each is written the way its libraries' own documentation shows it, and does the whole work: Kafka to Kafka, one
transaction per poll, long articles in overlapping windows with nothing cut, every entity with its place in characters, the
same fields of JSON. None imports anything of `enricher`, and those for Hugging Face run in an environment of their own.

    transfer.py      the loop that all share: poll, enrich, one transaction
    records.py       articles in, enriched records out
    windows.py       texts -> overlapping windows -> spans, for those that call the model themselves
    onnx_model.py    ONNX Runtime on a plain padded export
    onnx_worker.py   (a) the model in the worker's process
    http_server.py   (b) the model behind FastAPI ...
    http_worker.py   ... and the worker that asks it
    huggingface_worker.py   (c) the pipeline of Hugging Face, on PyTorch
    orders.py        how the bench tells a worker what to do next
    processes.py, export.py, contenders.py   the bench's own side
"""
