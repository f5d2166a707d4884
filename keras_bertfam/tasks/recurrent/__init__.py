"""Tasks whose rows go on from batch to batch, each beside its preprocessor."""
