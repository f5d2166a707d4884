"""Lines of English prose and a WordPiece vocabulary for them.

Novels and BERT's own vocabulary where the data folder is there (`BERTFAM_DATA`, or
`../shared/data` beside the repository), else Python's documentation, which every
interpreter carries, and a vocabulary trained on it.
"""

import itertools
import os
import pathlib
import tarfile

DATA = pathlib.Path(
    os.environ.get(
        "BERTFAM_DATA", pathlib.Path(__file__).parents[2] / "shared" / "data"
    )
)
NOVELS = DATA / "corpus" / "english_novels_60.tar.xz"
SOURCE = "novels, BERT's vocabulary" if NOVELS.exists() else "Python's documentation"


def lines():
    """Paragraphs, one line each, without end."""
    return itertools.cycle(_paragraphs())


def vocabulary():
    """Tokens in the order of their ids."""
    if NOVELS.exists():
        path = DATA / "tokenizers" / "bert_uncased" / "vocab.txt"
        return path.read_text(encoding="utf-8").split("\n")[:30522]
    import tensorflow as tf

    import keras_bertfam

    documents = tf.data.Dataset.from_tensor_slices(list(_paragraphs()))
    tokenizer = keras_bertfam.tokenizers.train_word_piece(
        documents, vocabulary_size=8000
    )
    return tokenizer.get_vocabulary()


def _paragraphs():
    blocks = _novels() if NOVELS.exists() else _documentation()
    return filter(None, (" ".join(block.split()) for block in blocks))


def _novels():
    with tarfile.open(NOVELS, "r|xz") as archive:
        for member in archive:
            if member.isfile():
                text = archive.extractfile(member).read()
                yield from text.decode("utf-8-sig", "replace").splitlines()


def _documentation():
    from pydoc_data import topics

    for text in topics.topics.values():
        yield from text.split("\n\n")
