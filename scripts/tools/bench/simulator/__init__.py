"""Runs the real scheduler on a fake clock, with simulated arrivals and a model of the engine. Hours pass in seconds.

`lengths`: token lengths of articles. `arrivals`: when they come. `engine`: how long a batch takes. `orders`: what the
scheduler is compared with. `statistics`: the results. `simulation`: the loop between them. These modules are independent
of one another.
"""
