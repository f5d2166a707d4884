"""Tasks to fine-tune on, each beside its preprocessor."""
