"""Training rows of a fixed length, made of documents, and batches of them."""
