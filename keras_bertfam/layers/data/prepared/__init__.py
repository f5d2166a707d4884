"""Rows of prepared corpora, and their batches by number."""
