"""Tasks that find passages, and tasks that read them."""
