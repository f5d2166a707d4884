"""Tasks that write texts token by token, and their samplers and settings."""
