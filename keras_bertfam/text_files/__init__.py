"""Reading of text files: plain text, JSON lines and Parquet, compressed or not."""
