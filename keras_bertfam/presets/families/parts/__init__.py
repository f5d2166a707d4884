"""What the families' records are made of."""
