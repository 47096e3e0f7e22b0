"""How far the group is behind, how old the oldest unprocessed record is, and how many workers that takes.

`backlog` is what is known at one moment, and `reading` asks the brokers for it. `rates` derives speeds from several such
moments, and `policy` a number of workers from those; both only compute. `trigger`, `watching` and `service` answer KEDA over
gRPC; the protocol is in `keda`.
"""
