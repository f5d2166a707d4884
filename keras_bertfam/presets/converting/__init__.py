"""Makes models of checkpoints, and checkpoints of models, by the families' tables."""
