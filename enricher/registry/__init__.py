"""Schema registries: fetches schemas in a thread and keeps them on disk. Nothing in the loop waits for the network."""
