"""Documents of text files, their sentences, and spans that are marked in them."""
