"""What the CUDA variant is worth, on a machine that has a GPU (`scripts/bench-gpu --help`)."""
