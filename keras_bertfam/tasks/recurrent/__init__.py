"""Tasks whose rows continue from batch to batch, each beside its preprocessor."""
