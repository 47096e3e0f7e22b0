"""The Kafka adapters: a source that is a consumer group member, and a sink that publishes in transactions.

Knows the client, not the worker. No `KafkaException` leaves this package. From the top down:

    sink               one transaction per release, a new producer after any trouble
    transaction        how one is made: the partition of each output, produce, send offsets, commit; refused records
    source             the consumer: poll, pause, positions, rewind; messages to records
    membership         what happens in a rebalance: callbacks, heartbeats, proof of membership
    assignment         which partitions come, go and are wanted, and what the client is told about them
    starts             where a partition begins, or why nobody can tell
    partitions         all assigned partitions
    partition          one of them: its states as a table; whether it is silent, or its next batch damaged
    catching_up        whether the group has committed what was there at the start
    precheck           properties, topics and rights, before the model is loaded
    ranges             reads ranges of offsets, for commands, and passes over batches that cannot be decompressed
    topicwatch         the partitions of the topics, and whether one was deleted and created again
    partition_reader   consumers without a group; everything that reads a topic builds on it, but the source
    producers          opening transactional producers, and closing them, only after a failed one was fenced
    metadata           topics, partitions and records from the client's types
    statistics         connected brokers and ends, from librdkafka's statistics
    errors             makes clients, keeps what they say, maps their errors to ours; the rights that a worker needs
    properties         the clients' configuration, and what users may set
    tokens             tokens from a cloud's identity, with which clients sign in

What is known of an assigned partition, and until when. In a revoke the loop collects and publishes once more, then it gives
the partition up in the order of this table, and the source does so last:

| state | where | until |
|---|---|---|
| tickets in flight, the offset to commit | `rules/offsets.py` | given up, or forgotten in a recovery |
| attempts at what may kill the process | `rules/attempts.py` | given up |
| dead letters since the committed ones | `rules/dead_letter_limits.py` | given up |
| articles that wait for the tokenizer or a schema | `loop/intake.py` | forgotten |
| start, position, end, leader epochs, state | `partition.py` | removed after the listener was told, or rewound |
| what the client is told: paused, to be fetched again | `assignment.py` | removed |
| which partitions left in this turn of the loop | `membership.py` | the next turn |
| the highest offset that this process committed | `starts.py` | the process ends |
"""
