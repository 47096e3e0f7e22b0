"""Schema registries: which decoder has this schema? Nothing in the loop waits for the network.

`decoders` answers in the loop's thread, and asks `fetcher` for what is not here. That has a thread of its own: `queue` says
which schemas are next, `store` has those on disk, `client` asks the registry (over `http`), and `compiling` makes decoders.
`record_schema` finds the id that our own records carry.
"""
