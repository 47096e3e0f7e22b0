"""Schema registries: which decoder reads the payloads of a schema? Nothing in the loop waits for the network.

`decoders` answers in the loop's thread; its own thread asks the registry (`registry_client`), or the disk while that is away
(`store`). `record_schema` finds the id that our own records carry.
"""
