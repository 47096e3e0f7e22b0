"""Schema registries: find the decoder for the payloads of a schema. Nothing in the loop waits for the network.

`decoders` answers in the loop's thread; its own thread asks the registry (`registry_client`), or the disk while that is away
(`store`, which also finds the id that our own records carry).
"""
