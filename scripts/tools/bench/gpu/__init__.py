"""What the CUDA form is worth, on a machine that has a GPU (`scripts/bench-gpu --help`)."""
