"""Documents as endless text: one stream, or several side by side."""
