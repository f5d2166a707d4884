"""A short file per family: its class, and what it computes that others don't."""
