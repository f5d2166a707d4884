"""Texts that tasks write for many others."""

from collections.abc import Sequence

from keras_bertfam.tasks.pretraining.generation_inputs import as_texts, stop_ids
from keras_bertfam.types import Model


def write_texts(model: Model, texts: Sequence[str], batch_size: int = 32) -> list[str]:
    """Write texts by greedy search with a `TextToText`, in rows like those of training.

    Args:
        model: a `TextToText` with a `TextToTextPreprocessor`.
        texts: sequence of strings. What is longer than a row is cut.
        batch_size: int. Texts that are written at a time.

    Returns:
        A list of strings, one for each.
    """
    preprocessor, positions = model.preprocessor, model.backbone.max_sequence_length
    length = preprocessor.layout.target_length + 1
    length = length if positions is None else min(length, positions)
    written: list[str] = []
    for start in range(0, len(texts), batch_size):
        rows = preprocessor.generate_preprocess([*texts[start : start + batch_size]])
        names = ("token_ids", "padding_mask")
        inputs = {name: rows[f"encoder_{name}"] for name in names}
        ids = model.generate(inputs, length)
        written += as_texts(model, ids, stop_ids(model, "auto"), specials=True)
    return written
