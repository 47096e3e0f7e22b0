"""The legs of the bench, one module each: `ABOUT`, a sentence, and `measure(bench) -> Outcome`."""
