"""Prepared corpora in place of documents: their rows, and batches by number."""
