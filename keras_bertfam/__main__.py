"""`python -m keras_bertfam`."""

from keras_bertfam.cli.app import app

app(prog_name="python -m keras_bertfam")
