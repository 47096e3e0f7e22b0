"""The source: assigned partitions, where they begin, and their records in order.

What is known of a partition, and until when. In a revoke the loop collects and publishes once more, then it gives the
partition up in the order of this table, and the source does so last:

| state | where | until |
|---|---|---|
| tickets in flight, the offset to commit | `rules/offsets.py` | given up, or forgotten in a recovery |
| attempts at what may kill the process | `rules/attempts.py` | given up |
| dead letters since the committed ones | `rules/dead_letter_limits.py` | given up |
| articles that wait for the tokenizer or a schema | `loop/intake.py` | forgotten |
| start, position, end, leader epochs, state | `partition.py` | removed after the listener was told, or rewound |
| what the client is told: paused, to be fetched again | `fetching.py` | removed, or a new client |
| which partitions left in this turn of the loop | `rebalances.py` | the next turn |
| lowest offsets and ends of the topic | `start_offsets.py` | the topic was made again |
"""
