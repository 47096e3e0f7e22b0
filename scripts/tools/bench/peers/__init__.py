"""Workers that a team would write instead of ours, for comparison.

Each is written as its libraries' documentation shows it, and does the whole job: Kafka to Kafka, one transaction per poll,
long articles in overlapping windows with nothing cut, every entity with its character offsets, the same JSON fields.
None imports anything of `enricher`; the peers on PyTorch run in a separate environment, the one on the JVM on the broker's
Java.

    transfer.py      the loop that all in Python share: poll, enrich, one transaction
    records.py       articles in, enriched records out
    windows.py       texts -> overlapping windows -> spans, for peers that call the model themselves
    window_model.py  ... and the batches of such windows
    onnx_model.py    ONNX Runtime on a plain padded export
    onnx_worker.py   (a) the model in the worker's process
    http_server.py   (b) the model behind FastAPI ...
    http_worker.py   ... and the worker that asks it
    huggingface_worker.py   (c) the pipeline of Hugging Face, on PyTorch
    torch_worker.py  (d) PyTorch without the pipeline: TorchScript, and torch.compile
    java/DjlWorker.java     (e) DJL with ONNX Runtime on the JVM ...
    djl.py           ... compiled and started with locked jars
    orders.py        the protocol between bench and peer
    processes.py, export.py, contenders.py, line_up.py   the bench's side
"""
