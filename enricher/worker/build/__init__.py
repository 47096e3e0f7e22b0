"""The composition root: the only place that wires settings to parts."""
