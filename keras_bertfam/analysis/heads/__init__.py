"""Attention heads: what they attend to, what they are for, and models without them."""
