"""The benchmark behind scripts/bench: every figure is a ratio inside one run."""
