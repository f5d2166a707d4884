"""Tasks that write texts token by token, and how they do it."""
