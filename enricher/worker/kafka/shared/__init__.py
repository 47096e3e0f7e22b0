"""The common ground of reading and writing: clients and their errors, topics, membership in the group."""
