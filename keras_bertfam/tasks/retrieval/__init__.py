"""Tasks that find passages, or read those that were found."""
