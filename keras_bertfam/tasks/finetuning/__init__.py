"""A file for each task to fine-tune on, its preprocessor beside it."""
