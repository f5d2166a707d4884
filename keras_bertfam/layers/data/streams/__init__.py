"""Documents as continuous text: one stream, or several side by side."""
