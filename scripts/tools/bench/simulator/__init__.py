"""The real scheduler on a fake clock: arrivals come, a model of the engine works, statistics are kept. Hours in seconds.

`lengths` says how long articles are, `arrivals` when they come, `engine` how long a batch takes, `orders` what the scheduler
is compared with, `statistics` what came of it; `simulation` is the loop between them. None of them knows another but
through what it is given.
"""
