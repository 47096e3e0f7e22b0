"""What reading and writing share: clients and their errors, topics, membership in the group."""
