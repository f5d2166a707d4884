"""Share code among REALM, RAG and open questions: passages that a retriever scores."""

import os
from collections.abc import Mapping
from typing import Any, Self

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.arguments import checked
from keras_bertfam.presets import folders
from keras_bertfam.presets.task_presets import changed_dtype
from keras_bertfam.tasks.losses import Perplexity, token_crossentropy
from keras_bertfam.tasks.retrieval.marginals import (
    check_marginalization,
    next_token_marginal,
    token_losses,
    token_marginal,
)
from keras_bertfam.tasks.task import LABELS, PretrainingTask
from keras_bertfam.types import Config, Model, Path, Tensor

_FOLDER = "retriever"
_ROWS = ("token_ids", "segment_ids", "padding_mask")


class PassageReader(PretrainingTask):
    """Base class of the tasks that read passages, which a retriever scores.

    Args:
        backbone: the model that reads.
        preprocessor: finds passages and makes rows; or `None`.
        retriever: `keras_bertfam.tasks.DualEncoder`, trained in place.
        **kwargs: arguments of `keras.Model`.

    Attributes:
        trains_passages: whether the tower of passages is trained. It then reads the
            passages; otherwise their vectors are inputs.
    """

    trains_passages = True

    def __init__(
        self,
        backbone: Model,
        preprocessor: Any = None,
        retriever: Any = None,
        **kwargs: Any,
    ) -> None:
        if not hasattr(retriever, "vector_dim"):
            raise ValueError(
                "`retriever` must be a `keras_bertfam.tasks.DualEncoder`. "
                f"Received: {type(retriever).__name__}."
            )
        super().__init__(backbone, preprocessor, **kwargs)
        self.retriever = retriever

    def passage_scores(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> Tensor:
        """Score passages with the current weights; `p(z | x)` is their softmax.

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
        if not self.trains_passages:
            return ops.stop_gradient(ops.convert_to_tensor(inputs["passage_vectors"]))
        rows = rows_of(inputs_of(inputs, "passage_"))
        return self.retriever.passage_vectors(rows, training=training)

    def unused_variables(self) -> list[keras.Variable]:
        unused = [*super().unused_variables(), *self.retriever.unused_variables()]
        if self.trains_passages:
            return unused
        parts = (self.retriever.passage_backbone, self.retriever.passage_projection)
        towers = [part for part in parts if part is not None]
        return unused + [v for tower in towers for v in tower.variables]

    def get_config(self) -> Config:
        retriever = keras.layers.serialize(self.retriever)
        retriever.pop(
            "compile_config", None
        )  # the retriever isn't trained by itself here
        config = {**super().get_config(), "retriever": retriever}
        readers = (self.preprocessor, self.retriever.preprocessor)
        if None not in readers and readers[0].tokenizer is readers[1].tokenizer:
            # Keras saves a shared tokenizer once, so it must be shared again when
            # loaded.
            for parts in (config, retriever["config"]):
                tokenizer = parts["preprocessor"]["config"]["tokenizer"]
                tokenizer["shared_object_id"] = id(readers[0].tokenizer)
        return config

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
            dtype = changed_dtype(preset, backbone)
            given = {"dtype": dtype} if dtype else {}
            folder = os.path.join(preset, _FOLDER)
            config["retriever"] = made.from_preset(folder, **given)
        return config

    def _not_task_weights(self):
        return [*super()._not_task_weights(), self.retriever]

    @checked
    def save_to_preset(
        self,
        preset_dir: Path,
        max_shard_size: float = 10,
        card: Mapping[str, Any] | None = None,
    ) -> None:
        """Save as other tasks do, with the retriever in a folder `retriever`."""
        with folders.preset_aside(preset_dir) as folder:
            super().save_to_preset(folder, max_shard_size, card)
            self.retriever.save_to_preset(os.path.join(folder, _FOLDER))


def inputs_of(inputs: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Pick the inputs whose names have a prefix, and cut the prefix off."""
    return {
        name.removeprefix(prefix): value
        for name, value in inputs.items()
        if name.startswith(prefix)
    }


def rows_of(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Pick the inputs that an encoder reads."""
    return {name: inputs[name] for name in _ROWS if name in inputs}


def flat(parts: Any) -> Any:
    """Flatten tensors `(batch, passages, ...)` to `(batch * passages, ...)`."""
    return keras.tree.map_structure(
        lambda x: ops.reshape(x, (-1, *ops.shape(x)[2:])), parts
    )


def by_row(parts: Any, passages: int) -> Any:
    """Unflatten tensors `(batch * passages, ...)` to `(batch, passages, ...)`."""
    return keras.tree.map_structure(
        lambda x: ops.reshape(x, (-1, passages, *ops.shape(x)[1:])), parts
    )


class TokensOfPassages(PassageReader):
    """Base class of the tasks that marginalise probabilities of tokens over passages.

    The `call` of a subclass returns a dict of `logits`, `(batch, passages, tokens,
    ...)`, and `passage_scores`, `(batch, passages)`. It computes `logits` with
    `predict_tokens`, from flat rows and `repeated_labels`.

    Args:
        backbone: the model that reads.
        preprocessor: finds passages and makes rows; or `None`.
        retriever: `keras_bertfam.tasks.DualEncoder`, trained in place.
        marginalization: `"sequence"` or `"token"`.
        **kwargs: arguments of `keras.Model`.
    """

    label_kind = "token"
    reads_labels = True
    # A token may be the likeliest by no passage alone, yet by all of them together.
    scores_tell_accuracy = False
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
        """Repeat the labels among the inputs for each of a question's `count` rows."""
        labels = inputs.get(LABELS)
        return None if labels is None else ops.repeat(labels, count, axis=0)

    def _likelihoods(self, y, y_pred, sample_weight):
        """Compute `log p(y_j | z)` and the weights of tokens, `(batch, tokens)`."""
        weights = ops.ones_like(y) if sample_weight is None else sample_weight
        logits = y_pred["logits"]
        labels = ops.repeat(ops.expand_dims(y, 1), logits.shape[1], axis=1)
        return -token_crossentropy(labels, logits), ops.cast(weights, "float32")

    def _token_losses(self, scores, likelihoods, weights):
        return token_losses(self.marginalization, scores, likelihoods, weights)

    def own_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Tensor:
        likelihoods, weights = self._likelihoods(y, y_pred, sample_weight)
        losses = self._token_losses(y_pred["passage_scores"], likelihoods, weights)
        total, count = ops.sum(losses * weights), ops.sum(weights)
        return distribution.global_mean(total, count) + self.added_losses()

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        scores = y_pred["passage_scores"]
        if self._scoring or self.marginalization == "sequence":
            likelihoods, weights = self._likelihoods(y, y_pred, sample_weight)
        if self._scoring:
            losses = self._token_losses(scores, likelihoods, weights)
            known = ops.stack([losses, ops.zeros_like(losses)], axis=-1)
            known = ops.expand_dims(known, -2)
        elif self.marginalization == "token":
            known = self.log_probabilities(y_pred)
        else:
            inside = ops.expand_dims(weights, 1) > 0
            likelihoods = ops.where(inside, likelihoods, 0.0)
            predicted = ops.log_softmax(ops.cast(y_pred["logits"], "float32"))
            known = next_token_marginal(scores, likelihoods, predicted)
        return super().compute_metrics(x, y, known, sample_weight)

    def default_loss(self) -> None:
        return None

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [Perplexity()]

    def get_config(self) -> Config:
        return {**super().get_config(), "marginalization": self.marginalization}
