"""Tokenizers from the files of other libraries, and back."""
