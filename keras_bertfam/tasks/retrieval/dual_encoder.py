"""Encode queries and passages as vectors that are close if they match."""

from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.layers.heads.summary_heads import VectorProjection
from keras_bertfam.presets.checkpoints import dpr
from keras_bertfam.presets.families.parts.recipes import PretrainingRecipe
from keras_bertfam.tasks.resizing import with_new_tokens
from keras_bertfam.tasks.retrieval.dual_encoder_preprocessor import (
    DualEncoderPreprocessor,
)
from keras_bertfam.tasks.retrieval.retriever import Retriever
from keras_bertfam.tasks.summary import (
    check_layout,
    flat_rows,
    summary_states,
    summary_token,
    with_summaries_global,
)
from keras_bertfam.types import Config, Model, Path, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class DualEncoder(Retriever):
    """Finds passages for queries, with a tower for each of the two or one for both.

    Call `fit()` to train, and `query_vectors()` and `passage_vectors()` for vectors.

    The score of a query and a passage is the inner product of their vectors. The loss
    is the cross-entropy of choosing the right passage among all passages of the batch:
    those of all queries on all replicas of a `tf.distribute` strategy, and hard
    negatives.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone`, the tower for queries.
        preprocessor: `DualEncoderPreprocessor`, or `None` for batches that are made
            already.
        passage_backbone: the tower for passages, or `None` for one tower, with one
            projection, that encodes both.
        projection_dim: int, the width of vectors; `None` takes the states themselves as
            vectors.
        projection_norm: bool. Whether a layer norm follows the projection.
        dropout: float. Dropout rate of projected vectors in training.
        pooling: `"cls"`, the state of the first token (XLNet: the last); or `"mean"` of
            the states of all tokens, special ones included.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors. Names of queries' inputs have the prefix `query_`, and
            the shape `(batch, length)`. Those of passages have the prefix `passage_`,
            and the shape `(batch, length)` or `(batch, count, length)`; the first
            passage of a row is the right one. Either may be missing.

    Returns:
        Dict of `query` and `passage`, float32 tensors `(batch, width)`, or `(batch,
        count, width)`.

    Raises:
        ValueError: for an argument out of its range, or towers that don't go together.

    `fit()` takes the batches of `preprocessor.dataset(documents)`, whose pairs are made
    by the inverse cloze task or another way, see `pairs` of the preprocessor. Or it
    takes pairs of texts as `(queries, passages)`. `compile()` without arguments sets up
    the training of the inverse cloze task; DPR's rate for pairs is
    `learning_rate=2e-5`. DPR itself is `passage_backbone=..., projection_dim=None`.
    `Backbone.from_preset("hf://facebook/dpr-question_encoder-single-nq-base")` reads
    its published tower of queries, and `export_to_transformers()` writes both.

    References:
        [Lee et al., 2019](https://arxiv.org/abs/1906.00300), sections 3 and 4;
        [Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906), section 3.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.DualEncoderPreprocessor(tokenizer)
    model = keras_bertfam.tasks.DualEncoder(backbone, preprocessor)
    model.encode(["Who wrote Emma?"]).shape  # (1, 128)
    ```
    """

    preprocessor_cls = DualEncoderPreprocessor
    fixed_arguments = ("projection_dim", "projection_norm", "dropout", "pooling")

    def __init__(
        self,
        backbone: Model,
        preprocessor: DualEncoderPreprocessor | None = None,
        passage_backbone: Model | None = None,
        projection_dim: int | None = 128,
        projection_norm: bool = True,
        dropout: float = 0.1,
        pooling: str = "cls",
        **kwargs: Any,
    ) -> None:
        if pooling not in ("cls", "mean"):
            raise ValueError(
                f'`pooling` must be "cls" or "mean". Received: pooling={pooling!r}.'
            )
        if passage_backbone is backbone:
            raise ValueError(
                "`passage_backbone` must be another model than `backbone`, or `None` "
                "for one tower that encodes both. Received: the same model twice."
            )
        backbone = with_new_tokens(backbone, preprocessor)
        if passage_backbone is not None:
            passage_backbone = with_new_tokens(passage_backbone, preprocessor)
        super().__init__(backbone, preprocessor, **kwargs)
        self.projection_dim = projection_dim
        self.projection_norm = projection_norm
        self.dropout = dropout
        self.pooling = pooling
        if passage_backbone is not None:
            _check_towers(backbone, passage_backbone, projection_dim)
        if pooling == "cls":
            for tower in (b for b in (backbone, passage_backbone) if b is not None):
                check_layout(preprocessor, summary_token(tower))
        self.passage_backbone = passage_backbone
        self.projection = self._make_projection(backbone, "projection")
        self.passage_projection = None
        if passage_backbone is not None:
            self.passage_projection = self._make_projection(
                passage_backbone, "passage_projection"
            )
        self.built = True
        self.compile_by_default()

    def _make_projection(self, backbone, name):
        if self.projection_dim is None:
            return None
        layer = VectorProjection(
            self.projection_dim,
            self.projection_norm,
            self.dropout,
            initializer=backbone.make_initializer(),
            dtype=backbone.dtype_policy,
            name=name,
        )
        layer.build((None, backbone.hidden_dim))
        return layer

    @property
    def vector_dim(self) -> int:
        """int: the width of vectors."""
        return self.projection_dim or self.backbone.hidden_dim

    def query_vectors(
        self, inputs: dict[str, Tensor], training: bool | None = False
    ) -> Tensor:
        """Compute vectors of queries.

        Args:
            inputs: dict of tensors, the backbone's inputs, `(batch, length)`.
            training: bool.

        Returns:
            float32 tensor `(batch, width)`.
        """
        return self._vectors(self.backbone, self.projection, inputs, training)

    def passage_vectors(
        self, inputs: dict[str, Tensor], training: bool | None = False
    ) -> Tensor:
        """Compute vectors of passages.

        Args:
            inputs: dict of tensors, the backbone's inputs, `(batch, length)` or
                `(batch, count, length)`.
            training: bool.

        Returns:
            float32 tensor `(batch, width)` or `(batch, count, width)`.
        """
        if self.passage_backbone is None:
            return self.query_vectors(inputs, training)
        return self._vectors(
            self.passage_backbone, self.passage_projection, inputs, training
        )

    def _vectors(self, backbone, projection, inputs, training):
        rows, group = dict(inputs), None
        if len(inputs["token_ids"].shape) == 3:
            rows, group = flat_rows(inputs)
        token = "mean" if self.pooling == "mean" else summary_token(backbone)
        rows = with_summaries_global(backbone, rows, token)
        states = summary_states(backbone, rows, token, training)[:, 0]
        if projection is not None:
            states = projection(states, training=training)
        vectors = ops.cast(states, "float32")
        return (
            vectors
            if group is None
            else ops.reshape(vectors, (*group, self.vector_dim))
        )

    def score(self, queries: Tensor, passages: Tensor) -> Tensor:
        return ops.matmul(queries, ops.transpose(passages))

    def towers(self) -> list[Any]:
        both = (self.backbone, self.passage_backbone)
        return [tower for tower in both if tower is not None]

    @property
    def optimizer_defaults(self) -> dict[str, Any]:
        return {**super().optimizer_defaults, "warmup_bounds": WARMUP_BOUNDS}

    def published_recipe(self) -> PretrainingRecipe:
        return INVERSE_CLOZE_RECIPE

    def _encode(self, texts, kind, batch_size, too_long):
        check_at_least(1, batch_size=batch_size)
        batches, places = self.preprocessor.batches(kind, texts, batch_size, too_long)
        vectors = self.predict(batches, verbose=0)[kind][places]
        return np.asarray(vectors, "float32")

    def _passage_parts(self):
        tower, projection = self.backbone, self.projection
        if self.passage_backbone is not None:
            tower, projection = self.passage_backbone, self.passage_projection
        settings = {"pooling": self.pooling}
        return [tower, *([] if projection is None else [projection])], settings

    def export_to_transformers(self, path: Path) -> None:
        """Write DPR's two encoders: the folders `question_encoder` and `ctx_encoder`.

        `transformers.DPRQuestionEncoder` and `DPRContextEncoder` load them, and so does
        `Backbone.from_preset`.

        Args:
            path: path of the folder to write both into.

        Raises:
            ValueError: if this isn't DPR, which is two BERTs without a projection, with
                `pooling="cls"`.
        """
        dpr.export(self, path)

    def get_config(self) -> Config:
        tower = self.passage_backbone
        return {
            **super().get_config(),
            "passage_backbone": None
            if tower is None
            else keras.layers.serialize(tower),
            "projection_dim": self.projection_dim,
            "projection_norm": self.projection_norm,
            "dropout": self.dropout,
            "pooling": self.pooling,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        tower = keras.saving.deserialize_keras_object(config["passage_backbone"])
        return super().from_config({**config, "passage_backbone": tower})

    @classmethod
    def _config_from(cls, preset, backbone):
        config = super()._config_from(preset, backbone)
        tower = keras.saving.deserialize_keras_object(config.get("passage_backbone"))
        return {**config, "passage_backbone": tower}


def _check_towers(backbone, other, projection_dim):
    for name in ("vocabulary_size", *(() if projection_dim else ("hidden_dim",))):
        ours, theirs = getattr(backbone, name), getattr(other, name)
        if ours != theirs:
            raise ValueError(
                f"`passage_backbone` must have the {name} of `backbone`, {ours}. "
                f"Received: {name}={theirs}."
            )


# The released code's warm-up is a tenth of the steps, within bounds.
WARMUP_BOUNDS = (100, 10_000)
INVERSE_CLOZE_RECIPE = PretrainingRecipe(
    task="DualEncoder",
    source="Lee et al., 2019, and its released code",
    learning_rate=1e-4,
    warmup_steps=10_000,
    total_steps=100_000,
    batch_size=4096,
    sequence_length=288,
    schedule_form="hold",
    bias_correction=False,
    masking={"mask_rate": 0.9},
    task_arguments={"projection_dim": 128, "projection_norm": True},
)
