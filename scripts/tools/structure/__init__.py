"""What the code looks like from outside: sizes, and smells that are counted and may only become fewer."""
