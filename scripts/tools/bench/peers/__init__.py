"""Workers that a team would write instead of ours, for comparison.

Each is written as its libraries' documentation shows it, and does the whole job: Kafka to Kafka, one transaction per poll,
long articles in overlapping windows with nothing cut, every entity with its character offsets, the same JSON fields.
None imports anything of `enricher`; the Hugging Face peers run in a separate environment.

    transfer.py      the loop that all share: poll, enrich, one transaction
    records.py       articles in, enriched records out
    windows.py       texts -> overlapping windows -> spans, for peers that call the model themselves
    onnx_model.py    ONNX Runtime on a plain padded export
    onnx_worker.py   (a) the model in the worker's process
    http_server.py   (b) the model behind FastAPI ...
    http_worker.py   ... and the worker that asks it
    huggingface_worker.py   (c) the pipeline of Hugging Face, on PyTorch
    orders.py        the protocol between bench and peer
    processes.py, export.py, contenders.py   the bench's side
"""
