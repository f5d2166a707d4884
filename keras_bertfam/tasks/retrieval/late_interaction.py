"""Compare queries and passages token by token, with a vector for each token."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.attention.masks import positions_without_padding
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.layers.heads.token_scores import crossentropy
from keras_bertfam.presets.checkpoints import sentence_transformers
from keras_bertfam.presets.families.parts.recipes import PretrainingRecipe
from keras_bertfam.retrieval.token_vectors import best_matches
from keras_bertfam.tasks.ranking import rank_passages
from keras_bertfam.tasks.resizing import with_new_tokens
from keras_bertfam.tasks.retrieval.late_interaction_preprocessor import (
    LateInteractionPreprocessor,
)
from keras_bertfam.tasks.retrieval.retriever import Retriever
from keras_bertfam.tasks.summary import (
    flat_rows,
    states_of,
    summary_token,
    with_summaries_global,
)
from keras_bertfam.tasks.vectors import check_exported_layout
from keras_bertfam.types import Config, Model, Path, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class LateInteraction(Retriever):
    """Finds passages for queries by their tokens, as ColBERT does.

    Call `fit()` to train, `encode()` for the vectors of texts' tokens,
    `query_vectors()` and `passage_vectors()` for those of preprocessed rows, and
    `rank()` to sort passages.

    Each token of a text has a vector of length 1. For each token of a query, the most
    similar token of a passage is found; the score is the sum of these cosines. So a
    query's words are compared with a passage's words one by one. The vectors of
    passages can still be computed once, before there are queries.

    Args:
        backbone: a backbone.
        preprocessor: `LateInteractionPreprocessor`, or `None` for batches that are made
            already.
        projection_dim: int. The width of vectors. Defaults to `128`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, see `DualEncoder`. `query_scored` and `passage_scored`,
            bool, mark the tokens that are compared; by default all except padding.

    Returns:
        Dict of `query`, a float32 tensor `(batch, length, projection_dim)`, and
        `passage`, `(batch, length, projection_dim)` or `(batch, count, length,
        projection_dim)`: vectors of length 1, and of 0 for tokens that aren't compared.

    Raises:
        ValueError: for an argument out of its range.

    `fit()` takes the batches of `preprocessor.dataset(documents)`, such as those of the
    inverse cloze task. Or it takes pairs of texts as `(queries, passages)`, with hard
    negatives a list of passages for each query, and optionally as `y` a teacher's
    scores for these. The loss is the cross-entropy of the right passage among all
    passages of the batch. With a teacher's scores it has two parts: the cross-entropy
    of the right passage among itself and the passages of other queries, and the
    divergence of each query's scores from the teacher's.

    References: [Khattab and Zaharia, 2020](https://arxiv.org/abs/2004.12832);
    [Santhanam et al., 2022](https://arxiv.org/abs/2112.01488), section 3.2, for the
    loss with a teacher.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.LateInteractionPreprocessor(
        tokenizer, sequence_length=64)
    model = keras_bertfam.tasks.LateInteraction(backbone, preprocessor)
    model.fit((["Who purrs?", "Who barks?"], ["A cat.", "A dog."]))
    model.rank("Who purrs?", ["A dog.", "A cat."])  # [(1, 31.2), (0, 29.5)]
    ```
    """

    preprocessor_cls = LateInteractionPreprocessor
    fixed_arguments = ("projection_dim",)
    text_axes = 2
    cuts_queries = True

    def __init__(
        self,
        backbone: Model,
        preprocessor: LateInteractionPreprocessor | None = None,
        projection_dim: int = 128,
        **kwargs: Any,
    ) -> None:
        backbone = with_new_tokens(backbone, preprocessor)
        super().__init__(backbone, preprocessor, **kwargs)
        self.projection_dim = projection_dim
        self.projection = keras.layers.Dense(
            projection_dim,
            use_bias=False,
            kernel_initializer=backbone.make_initializer(),
            dtype=backbone.dtype_policy,
            name="projection",
        )
        self.projection.build((None, backbone.hidden_dim))
        self.built = True
        self.compile_by_default()

    def query_vectors(
        self, inputs: dict[str, Tensor], training: bool | None = False
    ) -> Tensor:
        """Compute the vectors of queries' tokens.

        Args:
            inputs: dict of tensors, the backbone's inputs, and `scored`, `(batch,
                length)`.
            training: bool.

        Returns:
            float32 tensor `(batch, length, projection_dim)`.
        """
        rows, group = dict(inputs), None
        if len(inputs["token_ids"].shape) == 3:
            rows, group = flat_rows(inputs)
        seen = rows.get("padding_mask")
        scored = rows.pop("scored", seen)
        if seen is not None and self.backbone.get_config().get("position_offset"):
            # RoBERTa counts positions by the padding mask, so tokens that fill a query
            # up would have none.
            counted = ops.logical_or(ops.cast(seen, "bool"), ops.cast(scored, "bool"))
            rows.setdefault("position_ids", positions_without_padding(counted))
        rows = with_summaries_global(self.backbone, rows, summary_token(self.backbone))
        states = states_of(self.backbone, rows, training=training)
        vectors = ops.cast(self.projection(states), "float32")
        squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
        vectors = vectors * ops.rsqrt(ops.maximum(squares, 1e-24))
        if scored is not None:
            scored = ops.expand_dims(ops.cast(scored, "bool"), -1)
            vectors = ops.where(scored, vectors, 0.0)
        if group is None:
            return vectors
        return ops.reshape(vectors, (*group, *ops.shape(vectors)[1:]))

    def passage_vectors(
        self, inputs: dict[str, Tensor], training: bool | None = False
    ) -> Tensor:
        """Compute the vectors of passages' tokens.

        Args:
            inputs: dict of tensors, the backbone's inputs, and `scored`, `(batch,
                length)` or `(batch, count, length)`.
            training: bool.

        Returns:
            float32 tensor `(batch, length, projection_dim)` or `(batch, count, length,
            projection_dim)`.
        """
        return self.query_vectors(inputs, training)

    def score(self, queries: Tensor, passages: Tensor) -> Tensor:
        """Sum the greatest cosines of queries' tokens with each passage's tokens.

        `retrieval.token_vectors.best_matches` does the same in NumPy, and has an
        example.

        Args:
            queries: float32 tensor `(queries, length, projection_dim)`; vectors that
                aren't compared are 0.
            passages: float32 tensor `(passages, length, projection_dim)`.

        Returns:
            float32 tensor `(queries, passages)`.
        """
        shape = ops.shape(queries)[:2], ops.shape(passages)[:2]
        width = self.projection_dim
        queries = ops.reshape(queries, (-1, width))
        passages = ops.reshape(passages, (-1, width))
        cosines = ops.matmul(queries, ops.transpose(passages))
        scored = ops.any(ops.not_equal(passages, 0), axis=-1)
        cosines = ops.where(scored, cosines, -1e4)
        best = ops.max(ops.reshape(cosines, (-1, *shape[1])), axis=-1)
        # Tokens of a query that aren't compared have only cosines of 0.
        asked = ops.cast(ops.any(ops.not_equal(queries, 0), axis=-1), "float32")
        best = best * ops.expand_dims(asked, -1)
        return ops.sum(ops.reshape(best, (*shape[0], shape[1][0])), axis=1)

    def _query_losses(
        self, y: Any, scores: Tensor, right: Tensor, count: int
    ) -> Tensor:
        if y is None or len(y.shape) < 2:
            return crossentropy(right, scores)
        if y.shape[1] not in (None, count):
            raise ValueError(
                "`y` must have a teacher's score for each passage. Received: shape "
                f"{tuple(y.shape)}, for {count} passages."
            )
        others = ops.expand_dims(right, 1) + ops.arange(count, dtype="int32")
        student = ops.log_softmax(ops.take_along_axis(scores, others, axis=1))
        teacher = ops.log_softmax(ops.cast(y, "float32"))
        shares = ops.exp(teacher)  # terms with a score of `-inf` are 0
        parts = shares * (ops.where(shares > 0, teacher, 0.0) - student)
        divergence = ops.sum(parts, axis=1)
        # Among the batch's passages, a query's own negatives are left to the teacher.
        places = ops.arange(ops.shape(scores)[1], dtype="int32")
        behind = ops.expand_dims(places, 0) - ops.expand_dims(right, 1)
        own = ops.logical_and(behind > 0, behind < count)
        return divergence + crossentropy(right, ops.where(own, -1e9, scores))

    @property
    def optimizer_defaults(self) -> dict[str, Any]:
        return {**super().optimizer_defaults, "warmup_bounds": (0, 20_000)}

    def published_recipe(self) -> PretrainingRecipe:
        return COLBERT_RECIPE

    def _encode(self, texts, kind, batch_size, too_long):
        check_at_least(1, batch_size=batch_size)
        batches, places = self.preprocessor.batches(kind, texts, batch_size, too_long)
        found = []
        for batch in batches:  # batches have several lengths
            vectors = np.asarray(self.predict_on_batch(batch)[kind])
            # Each replica of a strategy returns the vectors of the whole batch.
            own = vectors[: len(batch[f"{kind}_token_ids"])]
            found += [each[each.any(axis=-1)] for each in own]
        return [found[place] for place in places]

    @checked
    def rank(
        self,
        query: str | Sequence[str],
        passages: Sequence[Any],
        top_k: int | None = None,
        batch_size: int = 32,
    ) -> list[Any]:
        """Sort passages by their scores, as `CrossEncoder.rank` does.

        Args:
            query, top_k: see `CrossEncoder.rank`.
            passages: list of str, or of pairs of title and text; for several queries, a
                list for each.
            batch_size: int.

        Returns:
            List of pairs of a passage's index in `passages` and its score; for several
            queries, a list for each.

        Raises:
            ValueError: see `CrossEncoder.rank`.

        Example:

        ```python
        model = keras_bertfam.tasks.LateInteraction.from_preset("my_bert")
        model.rank("Who purrs?", ["A dog.", "A cat."], top_k=1)  # [(1, 31.2)]
        ```
        """

        def scores_of(queries, passages):
            asked = self.encode(queries, "query", batch_size)
            passages = [
                [tuple(x) if isinstance(x, list) else x for x in texts]
                for texts in passages
            ]
            different = list(dict.fromkeys(x for texts in passages for x in texts))
            vectors = self.encode(different, "passage", batch_size)
            found = dict(zip(different, vectors, strict=True))
            for each, texts in zip(asked, passages, strict=True):
                scores = best_matches([each], [found[text] for text in texts])[0]
                yield scores, scores

        return rank_passages(self, query, passages, top_k, scores_of)

    def export_to_sentence_transformers(self, path: Path) -> None:
        """Write a folder from which `MultiVectorEncoder` gives the same vectors.

        The vectors of two families differ there. Longformer's first token sees all
        others only here. DeBERTa's tokens that fill queries up see nothing there.

        Args:
            path: path of the folder to write.

        Raises:
            ValueError: without a preprocessor, for markers in rows that have the start
                token at their end, and as `export_to_transformers`.
            ImportError: without safetensors, which the `hf` extra installs.

        Example:

        ```python
        model = keras_bertfam.tasks.LateInteraction.from_preset("my_bert")
        model.export_to_sentence_transformers("for_sentence_transformers")
        ```
        """
        check_exported_layout(self.preprocessor)
        sentence_transformers.export_tokens(self, path)

    def _passage_parts(self):
        settings = {}
        if self.preprocessor is not None:
            config = self.preprocessor.get_config()
            names = ("passage_marker", "skipped_tokens")
            settings = {name: config[name] for name in names}
        return [self.backbone, self.projection], settings

    def get_config(self) -> Config:
        return {**super().get_config(), "projection_dim": self.projection_dim}


COLBERT_RECIPE = PretrainingRecipe(
    task="LateInteraction",
    source="Santhanam et al., 2022, and its released code",
    learning_rate=1e-5,
    warmup_steps=20_000,
    total_steps=400_000,
    batch_size=32,
    sequence_length=220,
    task_arguments={"projection_dim": 128},
)
