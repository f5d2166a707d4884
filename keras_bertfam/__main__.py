"""`python -m keras_bertfam`."""

import os

# Read by TensorFlow when it is imported: no start-up chatter on the terminal.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from keras_bertfam.cli.app import app  # noqa: E402

app(prog_name="python -m keras_bertfam")
