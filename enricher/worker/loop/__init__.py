"""The loop and what only the loop needs.

    loop.py          the loop itself (`Worker`)
    ports.py         the Protocols of everything that the loop is given
    intake.py        records -> articles -> tokens -> windows in the scheduler
    queues.py        where tickets wait inside the intake
    pacing.py        how much may be read, how long the loop may wait, whether work still makes progress; size of batches
    isolation.py     takes articles one at a time if one of them may kill the process
    recovery.py      connecting at the start, and the one recovery from failed transactions
    pool.py          threads that run the model and the tokenizer (`WorkerPool`)
    snapshot.py      reads the worker's state for telemetry and health

Nothing here imports a Kafka client or a model runtime; `worker/wiring/` connects them.
"""
