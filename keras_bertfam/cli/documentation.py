"""The text that the commands have when they are given none."""

import os

from keras_bertfam.corpus import python_documentation
from keras_bertfam.types import Path
from keras_bertfam.whole_files import write_text


def write_documentation(folder: Path) -> tuple[str, str]:
    """Write Python's documentation to `train.txt` and `held_out.txt`.

    Args:
        folder: where to, which is there.

    Returns:
        The paths of the two. Every tenth document is held out.
    """
    texts = python_documentation()
    parts = {
        "train.txt": [text for i, text in enumerate(texts) if i % 10],
        "held_out.txt": texts[::10],
    }
    for name, documents in parts.items():
        write_text(os.path.join(folder, name), "\n\n".join(documents) + "\n")
    train, held_out = (os.path.join(folder, name) for name in parts)
    return train, held_out
