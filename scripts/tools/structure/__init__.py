"""The shape of the code: sizes, and smells that are counted and may only become fewer."""
