"""Schema registries: which decoder reads the payloads of a schema? Nothing in the loop waits for the network.

`decoders` answers in the loop's thread, and asks `fetcher` for schemas that it does not have. The fetcher has its own
thread: `queue` says which schemas are next, `store` reads those on disk, `registry_client` asks the registry (over `http`),
and `compiling` makes decoders. `record_schema_id` finds the id that our own records carry.
"""
