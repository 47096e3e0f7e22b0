"""How long tests wait."""

PATIENCE_S = 120.0
"""For what must happen, and usually does in seconds: a busy machine takes twenty times as long. Half of a test's limit."""
