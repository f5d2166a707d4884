"""Wrap a `TextEmbedder` for MTEB, the Massive Text Embedding Benchmark."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.types import Model


@checked
class MtebEncoder:
    """Gives `mteb.evaluate` access to a `TextEmbedder`.

    It has the interface of an encoder in mteb 2, and `encode(list_of_texts)` of mteb 1.
    Install mteb by `pip install mteb`: it isn't part of the extra `evaluation`.

    Args:
        model: `TextEmbedder` with a preprocessor.
        name: str, the model's name in MTEB's results, usually `"user/model"`. MTEB
            stores results by this name and a digest of the current weights.
        batch_size: int.

    Raises:
        ValueError: for a model without a preprocessor.

    Example:

    ```python
    embedder = keras_bertfam.tasks.TextEmbedder.from_preset("my_bert")
    encoder = keras_bertfam.metrics.MtebEncoder(embedder, "me/my_bert")
    encoder.encode(["A cat sits.", "A dog."]).shape  # (2, 128)
    # mteb.evaluate(encoder, mteb.get_tasks(["STSBenchmark"]))
    ```

    Reference: [Muennighoff et al., 2022](https://arxiv.org/abs/2210.07316).
    """

    def __init__(self, model: Model, name: str, batch_size: int = 32) -> None:
        if model.preprocessor is None:
            raise ValueError("`model` must have a preprocessor. Received: none.")
        self.model = model
        self.name = name
        self.batch_size = batch_size
        self.revision = _digest(model)

    @checked
    def encode(
        self,
        inputs: Iterable[str] | Iterable[Mapping[str, list[str]]],
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """Compute vectors of texts.

        Args:
            inputs: texts, or batches with a list of them as `"text"`.
            batch_size: int, or `None` for the encoder's.
            **kwargs: other information of MTEB about the task. Of it `prompt_type` is
                used: queries and documents get the model's prompts for them.

        Returns:
            float32 array `(len(texts), width)`, with the width of the model's vectors.
        """
        texts: list[str] = []
        for each in inputs:
            texts += [each] if isinstance(each, str) else each["text"]
        if not texts:
            return np.zeros((0, self._width), "float32")
        role = kwargs.get("prompt_type")
        role = getattr(role, "value", role)
        if role is not None:
            before = self.model.prompt_of("query" if role == "query" else "passage")
            texts = [before + text for text in texts]
        size = batch_size or self.batch_size
        return np.asarray(self.model.predict(texts, batch_size=size, verbose=0))

    @property
    def _width(self):
        model = self.model
        projected = model.projection_dim and not model.projection_in_training_only
        return model.projection_dim if projected else model.backbone.hidden_dim

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Compute cosines of all vectors of one array with all of another, `(m, n)`."""
        from mteb.similarity_functions import cos_sim

        return cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Compute cosines of the vectors of two arrays, one by one, `(n,)`."""
        from mteb.similarity_functions import pairwise_cos_sim

        return pairwise_cos_sim(embeddings1, embeddings2)

    @property
    def mteb_model_meta(self) -> Any:
        """The model's metadata for MTEB, a `mteb.models.ModelMeta`."""
        from mteb.models.model_meta import ModelMeta, ScoringFunction

        return ModelMeta.create_empty(
            {
                "name": self.name,
                "revision": self.revision,
                "n_parameters": self.model.count_params(),
                "embed_dim": self._width,
                "max_tokens": self.model.preprocessor.sequence_length,
                "similarity_fn_name": ScoringFunction.COSINE,
            }
        )


def _digest(model):
    told = model.passage_digest() + model.prompt_of("query")
    return hashlib.sha256(told.encode()).hexdigest()[:16]
