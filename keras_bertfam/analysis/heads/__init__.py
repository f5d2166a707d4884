"""Analyse attention heads: what they attend to, their roles, and their pruning."""
