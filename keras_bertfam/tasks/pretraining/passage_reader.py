"""What REALM and RAG share: passages that a retriever scores and a model reads."""

import os
from collections.abc import Mapping
from typing import Any, Self

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.presets import folders
from keras_bertfam.tasks.losses import Perplexity, token_crossentropy
from keras_bertfam.tasks.pretraining.marginals import (
    check_marginalization,
    token_losses,
    token_marginal,
)
from keras_bertfam.tasks.task import PretrainingTask
from keras_bertfam.types import Config, Model, Path, Tensor

_FOLDER = "retriever"


class PassageReader(PretrainingTask):
    """Base of the tasks that marginalise over passages.

    A subclass gives in `call` a dict of `logits`, `(batch, passages, tokens, ...)`, by
    `predict_tokens` of flat rows, and `passage_scores`, `(batch, passages)`.

    Attributes:
        row_ids: name of the inputs that are rows with a passage each, int
            `(batch, passages, length)`.

    Args:
        backbone: the model that reads.
        preprocessor: what finds passages and makes rows, or `None`.
        retriever: `keras_bertfam.tasks.DualEncoder`, trained in place.
        marginalization: `"sequence"` or `"token"`.
        **kwargs: arguments of `keras.Model`.
    """

    label_kind = "token"
    row_ids = "token_ids"
    fixed_arguments = ("marginalization",)

    def __init__(
        self,
        backbone: Model,
        preprocessor: Any = None,
        retriever: Any = None,
        marginalization: str = "sequence",
        **kwargs: Any,
    ) -> None:
        if not hasattr(retriever, "query_vectors"):
            raise ValueError(
                "`retriever` must be a `keras_bertfam.tasks.DualEncoder`. "
                f"Received: {type(retriever).__name__}."
            )
        super().__init__(backbone, preprocessor, **kwargs)
        self.retriever = retriever
        self.marginalization = check_marginalization(marginalization)

    def passage_scores(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> Tensor:
        """What `p(z | x)` is the softmax of, by today's weights.

        Args:
            inputs: dict of tensors, those of the call.
            training: bool or `None`.

        Returns:
            float32 tensor `(batch, passages)`.
        """
        query = inputs_of(inputs, "query_")
        queries = self.retriever.query_vectors(query, training=training)
        queries = ops.expand_dims(ops.cast(queries, "float32"), 1)
        vectors = ops.cast(self._passage_vectors(inputs, training), "float32")
        return ops.sum(queries * vectors, axis=-1)

    def _passage_vectors(self, inputs, training):
        raise TypeError(f"{type(self).__name__} must define `_passage_vectors`.")

    def log_probabilities(self, outputs: dict[str, Tensor]) -> Tensor:
        """The log-probabilities of each token over all passages.

        Args:
            outputs: dict of tensors, what the call gives.

        Returns:
            float32 tensor `(batch, tokens, vocabulary_size)`.
        """
        logits = ops.cast(outputs["logits"], "float32")
        return token_marginal(outputs["passage_scores"], ops.log_softmax(logits))

    def _labels_known(self, data: Any) -> Any:
        # The vocabulary head is called with a row for each passage.
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if y is not None:
            y = ops.repeat(y, x[self.row_ids].shape[1], axis=0)
        return super()._labels_known((x, y, sample_weight))

    def _token_losses(self, y, y_pred, sample_weight):
        """Losses of tokens and their weights, both `(batch, tokens)`."""
        weights = ops.ones_like(y) if sample_weight is None else sample_weight
        weights = ops.cast(weights, "float32")
        logits, scores = y_pred["logits"], y_pred["passage_scores"]
        labels = ops.repeat(ops.expand_dims(y, 1), logits.shape[1], axis=1)
        likelihoods = -token_crossentropy(labels, logits)
        return token_losses(self.marginalization, scores, likelihoods, weights), weights

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        losses, weights = self._token_losses(y, y_pred, sample_weight)
        total, count = ops.sum(losses * weights), ops.sum(weights)
        return distribution.global_mean(total, count) + self.added_losses()

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        if self._reads_scores:
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

    def unused_variables(self) -> list[keras.Variable]:
        return [*super().unused_variables(), *self.retriever.unused_variables()]

    def get_config(self) -> Config:
        retriever = keras.layers.serialize(self.retriever)
        retriever.pop("compile_config", None)  # it isn't trained by itself here
        return {
            **super().get_config(),
            "retriever": retriever,
            "marginalization": self.marginalization,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        retriever = keras.saving.deserialize_keras_object(config["retriever"])
        return super().from_config({**config, "retriever": retriever})

    @classmethod
    def _config_from(cls, preset, backbone):
        config = super()._config_from(preset, backbone)
        if "retriever" in config:
            made = keras.saving.get_registered_object(
                config["retriever"]["registered_name"]
            )
            config["retriever"] = made.from_preset(os.path.join(preset, _FOLDER))
        return config

    def _not_task_weights(self):
        return [*super()._not_task_weights(), self.retriever]

    def save_to_preset(
        self,
        preset_dir: Path,
        max_shard_size: float = 10,
        card: Mapping[str, Any] | None = None,
    ) -> None:
        """As that of other tasks; a folder `retriever` in it is the retriever's."""
        with folders.write_aside(preset_dir) as folder:
            super().save_to_preset(folder, max_shard_size, card)
            self.retriever.save_to_preset(os.path.join(folder, _FOLDER))


def inputs_of(inputs: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The inputs whose names begin with a prefix, by their names without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in inputs.items()
        if name.startswith(prefix)
    }


def flat(parts: Any) -> Any:
    """Tensors `(batch, passages, ...)` as `(batch * passages, ...)`."""
    return keras.tree.map_structure(
        lambda x: ops.reshape(x, (-1, *ops.shape(x)[2:])), parts
    )


def by_row(parts: Any, passages: int) -> Any:
    """Tensors `(batch * passages, ...)` as `(batch, passages, ...)`."""
    return keras.tree.map_structure(
        lambda x: ops.reshape(x, (-1, passages, *ops.shape(x)[1:])), parts
    )
