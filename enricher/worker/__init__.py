"""The loop and what only the loop needs: what may be read, where a record goes next, and the way back from trouble.

    loop.py       the loop itself (`Worker`)
    ports.py      the Protocols of everything that the loop is given
    intake.py     records -> decoded, tokenised, cut into windows
    pacing.py     how much may be read, how long the loop may wait, whether anything still moves
    budget.py     lowers the tokens of a batch after the device ran out of memory
    isolation.py  takes articles one at a time where one may kill the process
    recovery.py   the one way back from a failed transaction, and the start
    pool.py       threads that run the model and the tokenizer (`WorkerPool`)
    snapshot.py   reads how full everything is, for telemetry and health

The loop imports no Kafka client and no runtime of models: `app/` wires them to it.
"""
