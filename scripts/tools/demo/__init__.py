"""The demonstration behind scripts/demo: real articles, a real broker, the real commands, and a look at what came out."""
