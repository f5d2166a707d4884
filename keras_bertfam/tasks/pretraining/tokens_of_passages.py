"""What REALM and RAG share: the likelihoods of tokens, summed over passages."""

from typing import Any

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.tasks.losses import Perplexity, token_crossentropy
from keras_bertfam.tasks.pretraining.marginals import (
    check_marginalization,
    token_losses,
    token_marginal,
)
from keras_bertfam.tasks.pretraining.passage_reader import PassageReader
from keras_bertfam.tasks.task import LABELS
from keras_bertfam.types import Config, Model, Tensor


class TokensOfPassages(PassageReader):
    """Base of the tasks that marginalise the likelihoods of tokens over passages.

    A subclass gives in `call` a dict of `logits`, `(batch, passages, tokens, ...)`, by
    `predict_tokens` of flat rows and `repeated_labels`, and `passage_scores`,
    `(batch, passages)`.

    Args:
        backbone: the model that reads.
        preprocessor: what finds passages and makes rows, or `None`.
        retriever: `keras_bertfam.tasks.DualEncoder`, trained in place.
        marginalization: `"sequence"` or `"token"`.
        **kwargs: arguments of `keras.Model`.
    """

    label_kind = "token"
    reads_labels = True
    fixed_arguments = ("marginalization",)

    def __init__(
        self,
        backbone: Model,
        preprocessor: Any = None,
        retriever: Any = None,
        marginalization: str = "sequence",
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, retriever, **kwargs)
        self.marginalization = check_marginalization(marginalization)

    def log_probabilities(self, outputs: dict[str, Tensor]) -> Tensor:
        """Compute the log-probabilities of each token over all passages.

        Args:
            outputs: dict of tensors, what the call gives.

        Returns:
            float32 tensor `(batch, tokens, vocabulary_size)`.
        """
        logits = ops.cast(outputs["logits"], "float32")
        return token_marginal(outputs["passage_scores"], ops.log_softmax(logits))

    def repeated_labels(self, inputs: dict[str, Tensor], count: int) -> Tensor | None:
        """Give the labels among the inputs to each of a question's `count` rows."""
        labels = inputs.get(LABELS)
        return None if labels is None else ops.repeat(labels, count, axis=0)

    def _token_losses(self, y, y_pred, sample_weight):
        """Compute losses of tokens and their weights, both `(batch, tokens)`."""
        weights = ops.ones_like(y) if sample_weight is None else sample_weight
        weights = ops.cast(weights, "float32")
        logits, scores = y_pred["logits"], y_pred["passage_scores"]
        labels = ops.repeat(ops.expand_dims(y, 1), logits.shape[1], axis=1)
        likelihoods = -token_crossentropy(labels, logits)
        return token_losses(self.marginalization, scores, likelihoods, weights), weights

    def own_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Tensor:
        losses, weights = self._token_losses(y, y_pred, sample_weight)
        total, count = ops.sum(losses * weights), ops.sum(weights)
        return distribution.global_mean(total, count) + self.added_losses()

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        if self._scoring:
            losses, _ = self._token_losses(y, y_pred, sample_weight)
            scores = ops.stack([losses, ops.zeros_like(losses)], axis=-1)
            known = ops.expand_dims(scores, -2)
        else:
            known = self.log_probabilities(y_pred)
        return super().compute_metrics(x, y, known, sample_weight)

    def default_loss(self) -> None:
        return None

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [Perplexity()]

    def get_config(self) -> Config:
        return {**super().get_config(), "marginalization": self.marginalization}
