"""Questions of the legs to `enricher.workshop.simulator`, which runs the worker's scheduler on a fake clock.

`lengths`: token lengths of articles. `arrivals`: when they come. `orders`: what the scheduler is compared with.
`statistics`: the results. `scenarios`: the devices and streams of the leg `batching`.
"""
