"""A file for each objective of pre-training, its preprocessor beside it."""
