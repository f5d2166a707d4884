"""Score a pre-trained model on labelled data: frozen, fine-tuned, or writing text.

Keras is imported only when something is measured: tables are checked without it.
"""

import os
from typing import Any

# Where each dataset may be in the folder: under its name, or as in SciBERT's `data`.
PLACES = {
    "ud_ewt_trees": ("ud_ewt",),
    "wnut17": ("wnut17",),
    "bc5cdr": ("bc5cdr", "ner/bc5cdr"),
    "jnlpba": ("jnlpba", "ner/JNLPBA"),
    "ncbi_disease": ("ncbi_disease", "ner/NCBI-disease"),
    "scierc": ("scierc", "ner/sciie"),
    "ebm_nlp": ("ebm_nlp", "pico/ebmnlp"),
    "genia": ("genia", "parsing/genia"),
    "chemprot": ("chemprot", "text_classification/chemprot"),
    "scierc_relations": (
        "scierc_relations",
        "text_classification/sciie-relation-extraction",
    ),
    "acl_arc": ("acl_arc", "text_classification/citation_intent"),
    "scicite": ("scicite", "text_classification/sci-cite"),
}
# The same for datasets that a `TextToText` learns as pairs of texts.
TEXT_PLACES = {
    "sst2": ("sst2",),
    "mrpc": ("mrpc",),
    "cnn_dailymail": ("cnn_dailymail",),
    "xsum": ("xsum",),
    "squad": ("squad", "squad11"),
    "multi30k": ("multi30k",),
}
# Ways to use an encoder: peak learning rate for small models, and epochs.
WAYS = {"frozen": (1e-3, 10), "fine_tuned": (5e-4, 4)}
AS_TEXT = "as_text"
_TEXT_RATE, _TEXT_EPOCHS = 1e-3, 4
_TEXT_LENGTH = 256  # tokens, at least: a question with its passage
_MOST_WRITTEN = 500  # texts take longer to write than labels
_BATCH = 32
_MOST_SCORED = 6000
LABELLED_LIMIT = 6000  # examples to train on, by default


def column(name: str, way: str) -> str:
    """Name the column of a dataset and a way to use the encoder."""
    return f"{name}_{way}"


def columns() -> dict[str, tuple[str, str]]:
    """List all columns: a dict from names to pairs of a dataset and a way."""
    ways = [(name, way) for name in PLACES for way in WAYS]
    ways += [(name, AS_TEXT) for name in TEXT_PLACES]
    return {column(name, way): (name, way) for name, way in ways}


def find(folder: str | None, name: str) -> str | None:
    """Find a dataset in a folder; give `None` if it isn't there.

    Args:
        folder: path, or `None`.
        name: a key of `PLACES` or `TEXT_PLACES`.
    """
    known = {**PLACES, **TEXT_PLACES}[name]
    places = [os.path.join(folder, place) for place in known] if folder else []
    return next((place for place in places if os.path.isdir(place)), None)


def load(name: str, place: str, limit: int = LABELLED_LIMIT) -> tuple[Any, Any]:
    """Load examples to train on and to score.

    If EWT's training part is missing, its trees are learned from the validation part.

    Args:
        name: a key of `PLACES`.
        place: its folder.
        limit: int. The most examples to train on.

    Returns:
        A tuple of two `Examples`: the first `limit` and the first 6,000 at most.
    """
    from keras_bertfam import datasets

    try:
        train = datasets.load_examples(name, "train", place)
    except FileNotFoundError:
        if name != "ud_ewt_trees":
            raise
        train = datasets.load_examples(name, "validation", place)
    test = datasets.load_examples(name, "test", place)
    return train.take(limit), test.take(_MOST_SCORED)


def score(name: str, way: str, trained: Any) -> float | None:
    """Train a task on labelled data, and score it by the data's first metric.

    A frozen encoder's states are mixed and read by a bidirectional LSTM, whose two
    directions together are as wide as the encoder. The LSTM is trained with the head.
    In both ways the encoder has its old weights afterwards.

    Args:
        name: a key of `PLACES`.
        way: a key of `WAYS`.
        trained: `measures.Trained`.

    Returns:
        The score, or `None` without the data.
    """
    place = find(trained.labelled, name)
    if place is None:
        return None
    from keras_bertfam import metrics
    from keras_bertfam.cli.finetuning_heads import CLASSES
    from keras_bertfam.metrics.callback import predicted_labels
    from keras_bertfam.models import FeatureBackbone

    train, test = load(name, place, trained.labelled_limit)
    cls = CLASSES[train.task.kind]
    length = trained.run.sequence_length
    preprocessor = cls.preprocessor_cls(
        trained.tokenizer, length, buckets=[length], seed=trained.run.seed
    )
    backbone = trained.model.backbone
    before, trainable = backbone.get_weights(), backbone.trainable
    encoder = backbone
    if way == "frozen":
        encoder = FeatureBackbone(backbone, lstm_dim=backbone.hidden_dim // 2)
    model = cls(encoder, preprocessor=preprocessor, label_names=[*train.label_names])
    rate, epochs = WAYS[way]
    model.compile(learning_rate=rate, jit_compile=False)
    model.fit(train.x, train.y, batch_size=_BATCH, epochs=epochs, verbose=0)
    found = predicted_labels(model, test, _BATCH)
    backbone.trainable = trainable
    backbone.set_weights(before)
    (metric, *_) = train.task.metrics
    return metrics.compute_metrics([metric], test.y, found)[metric]


def load_texts(name: str, place: str, limit: int = LABELLED_LIMIT) -> tuple[Any, Any]:
    """Load examples to train on as text, and examples to score.

    If SQuAD's training part is missing, three quarters of the validation articles are
    trained on.

    Args:
        name: a key of `TEXT_PLACES`.
        place: its folder.
        limit: int. The most examples to train on.

    Returns:
        A tuple of two `Examples`: the first `limit` and the first 500 at most.
    """
    from keras_bertfam import datasets

    held_out = datasets.load_examples(name, "validation", place)
    try:
        train = datasets.load_examples(name, "train", place)
    except FileNotFoundError:
        if name != "squad":
            raise
        train, held_out = held_out.split_articles(3 * len({*held_out.titles}) // 4)
    return train.take(limit), held_out.take(_MOST_WRITTEN)


def score_written(name: str, trained: Any) -> float | None:
    """Train a `TextToText` on pairs of labelled texts, and score what it writes.

    Texts are written by greedy search, and scored by the data's first metric. The
    backbone has its old weights afterwards.

    Args:
        name: a key of `TEXT_PLACES`.
        trained: `measures.Trained`.

    Returns:
        The score; `None` without the data, and for a model that isn't a `TextToText`.
    """
    place = find(trained.labelled, name)
    from keras_bertfam import datasets, optimizers, tasks

    if place is None or not isinstance(trained.model, tasks.TextToText):
        return None
    from keras_bertfam.cli import finetuning_text
    from keras_bertfam.cli.prediction import write_texts

    train, held_out = load_texts(name, place, trained.labelled_limit)
    backbone = trained.model.backbone
    before = backbone.get_weights()
    # T5's positions are relative: rows may be longer than in pre-training.
    length = max(trained.run.sequence_length, _TEXT_LENGTH)
    length = min(length, backbone.max_sequence_length or length)
    preprocessor = tasks.TextToTextPreprocessor(trained.tokenizer, length)
    model = tasks.TextToText(backbone, preprocessor)
    pairs = finetuning_text.prepare(model, train)
    model.preprocessor.seed = trained.run.seed
    model.compile(optimizers.AdamW(_TEXT_RATE, clipnorm=1.0), jit_compile=False)
    batches = model.preprocessor.dataset(pairs, _BATCH)
    model.fit(batches, epochs=_TEXT_EPOCHS, verbose=0)
    asked, _ = datasets.as_text_pairs(held_out)
    written = write_texts(model, asked, _BATCH)
    backbone.set_weights(before)
    return datasets.score_texts(held_out, written)[held_out.task.metrics[0]]
