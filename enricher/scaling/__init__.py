"""How far the group is behind, how old that makes the oldest record, and how many workers it takes.

`backlog` says what is known at one moment, `reading` asks the brokers for it. `rates` makes speeds of several such moments,
`policy` makes a number of workers of those; both compute only. `asked`, `watching` and `service` answer KEDA over gRPC,
in the words of its own contract, which is in `keda`.
"""
