"""`scripts/release`: prepares a release, and builds what is released."""
