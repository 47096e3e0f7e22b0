"""The Kafka adapters: a source that is a consumer group member, and a sink that publishes in transactions.

Knows the client, not the worker. No `KafkaException` leaves this package.

reading/
    source             the consumer: poll, pause, positions, rewind, group membership
    partition          the states of an assigned partition, as a table; partitions: all of them
    silence            whether one delivers nothing although it has records; damage: whether its next batch is damaged
    assignment         which partitions come, go and are wanted; the end if one stops delivering
    start_offsets      where they begin, or why nobody can tell; fetching: what the client is told about them
    rebalances         the consumer's callbacks
    delivery           messages to records
    ranges             reads ranges of offsets, for commands; unreadable: batches that cannot be decompressed
    catching_up        whether the group has committed what was there at the start

writing/
    sink               one transaction per release, a new producer after any trouble
    transaction        begin, produce, flush, send offsets, commit; which records the broker refused
    placement          the partition of each output
    limits             max.message.bytes of the output topics, asked for at the start

shared/
    client             their configuration; properties: what users may set
    client_errors      makes clients, keeps what they say besides exceptions; errors: their exceptions mapped to ours
    statistics         connected brokers and ends, from librdkafka's statistics
    metadata           topics, partitions and records from the client's types
    partition_reader   reads ranges of a topic; everything that reads one builds on it, but the source
    producers          opening transactional producers; closing: closing them, only after a failed one was fenced
    rights             what a worker needs; which is missing, by an error or by what the broker allows
    membership         proof of membership, and when a refused transaction may be made again
    heartbeats         when the consumer must be called, so that the group hears of it
    topicwatch         whether the topics changed or were recreated
    precheck           properties, topics and rights, before the model is loaded
"""
