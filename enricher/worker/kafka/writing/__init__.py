"""The sink: one transaction for outputs and offsets, and what must hold for it."""
