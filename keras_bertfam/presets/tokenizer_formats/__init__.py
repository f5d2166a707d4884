"""Reads tokenizers from files of other libraries, and writes them."""
