"""Schema registries: which decoder reads the payloads of a schema? Nothing in the loop waits for the network.

`decoders` answers in the loop's thread, and asks `fetcher` for schemas that it does not have. The fetcher has its own
thread, in which `finding` asks the registry (`registry_client`), or the disk while that is away (`store`), and which makes
decoders. `record_schema_id` finds the id that our own records carry.
"""
