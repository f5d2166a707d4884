"""A short file for each family: its class, and computation that only it has."""
