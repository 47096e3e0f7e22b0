"""Workers that a team would write instead of ours, for comparison.

Each is written as its libraries' documentation shows it, and does the whole job: Kafka to Kafka, one transaction per poll,
long articles in overlapping windows with nothing cut, every entity with its character offsets, the same JSON fields.
None imports anything of `enricher`; the peers on PyTorch run in a separate environment, the one on the JVM on the broker's
Java.

    transfer.py      the loop that all in Python share: poll, enrich, one transaction; the orders of the bench. Alone, it
                     has no model: what Kafka costs, for the leg `latency`
    records.py       articles in, enriched records out
    window_model.py  texts -> overlapping windows -> spans, for peers that call the model themselves
    onnx_worker.py   (a) ONNX Runtime on a plain padded export, in the worker's process
    http.py          (b) the same model behind FastAPI, and the worker that asks it
    torch_worker.py  (c) the pipeline of Hugging Face, on PyTorch; (d) torch.compile
    java/DjlWorker.java     (e) DJL with ONNX Runtime on the JVM
    line_up.py, results.py  the bench's side: starts them, and what their rows say
"""
