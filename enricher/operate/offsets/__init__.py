"""Commands that change the committed offsets of a group, while it has no members."""
