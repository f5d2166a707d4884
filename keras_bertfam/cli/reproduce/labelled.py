"""What a pre-trained encoder is good for on labelled data: frozen, and fine-tuned.

Keras is imported when something is measured, as tables are checked without.
"""

import os
from typing import Any

# Of each set of data where it may be in the folder: by its name, or as in SciBERT's.
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
# Ways to use an encoder: the peak of the learning rate, of small models, and epochs.
WAYS = {"frozen": (1e-3, 10), "fine_tuned": (5e-4, 4)}
_BATCH = 32
_MOST = 6000  # examples to train on, and to score


def column(name: str, way: str) -> str:
    """Name the column of a set of data and a way."""
    return f"{name}_{way}"


def find(folder: str | None, name: str) -> str | None:
    """Find a set of data in a folder; `None` where it isn't there.

    Args:
        folder: path, or `None`.
        name: a key of `PLACES`.
    """
    places = [os.path.join(folder, place) for place in PLACES[name]] if folder else []
    return next((place for place in places if os.path.isdir(place)), None)


def load(name: str, place: str) -> tuple[Any, Any]:
    """Load examples to train on and to score.

    Trees of EWT are trained on its part to validate where that to train isn't there.

    Args:
        name: a key of `PLACES`.
        place: its folder.

    Returns:
        A tuple of two `Examples`, at most 6,000 of each, the first ones.
    """
    from keras_bertfam import datasets

    try:
        train = datasets.load_examples(name, "train", place)
    except FileNotFoundError:
        if name != "ud_ewt_trees":
            raise
        train = datasets.load_examples(name, "validation", place)
    return train.take(_MOST), datasets.load_examples(name, "test", place).take(_MOST)


def score(name: str, way: str, trained: Any) -> float | None:
    """Train a task on labelled data, and score it by the data's first metric.

    Frozen, states are mixed and read by an LSTM, as wide as the encoder in both
    directions together, which is trained with the head. The encoder is the same
    afterwards.

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

    train, test = load(name, place)
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
