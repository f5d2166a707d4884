"""Tasks that hide or replace tokens, each beside its preprocessor."""
