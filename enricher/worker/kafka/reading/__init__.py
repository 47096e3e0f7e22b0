"""The source: assigned partitions, where they begin, and their records in order."""
