"""Files as people have them: text, JSON lines and Parquet, compressed or not."""
