"""The legs of the bench, one module each: a sentence `ABOUT`, and `measure(bench) -> Outcome`."""
