"""Make a vector for each text."""

import math
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_bertfam.presets import preset_checks
from keras_bertfam.presets.checkpoints import sentence_transformers
from keras_bertfam.presets.checkpoints.sentence_transformers import POOLINGS
from keras_bertfam.presets.converting.heads import BACKBONE
from keras_bertfam.presets.families.t5 import T5
from keras_bertfam.tasks.finetuning.embedding_losses import (
    NegativesOrSimilarities,
    cosine,
    unit,
)
from keras_bertfam.tasks.finetuning.embedding_task import EmbeddingTask
from keras_bertfam.tasks.finetuning.text_embedder_preprocessor import (
    TextEmbedderPreprocessor,
)
from keras_bertfam.tasks.summary import (
    check_layout,
    flat_rows,
    states_of,
    summary_states,
    summary_token,
)
from keras_bertfam.tasks.vectors import check_exported_layout
from keras_bertfam.types import Config, Model, Path, Tensor

# The texts of a tuple share a row up to this length. In longer rows, attention, whose
# cost is quadratic, costs more than the padding that is saved.
_LONGEST_ROW = 512
_SETTINGS = (
    "pooling",
    "normalize",
    "projection_dim",
    "projection_activation",
    "projection_bias",
    "projection_in_training_only",
    "truncate_dim",
)


@keras.saving.register_keras_serializable("keras_bertfam")
class TextEmbedder(EmbeddingTask):
    """Turns texts into vectors, with any backbone of the library.

    Call `fit()` to train, `predict()` for vectors, `encode()` for vectors of queries or
    passages, `similarity()` to compare texts, and `report()` for scores and errors.

    Args:
        backbone: a backbone.
        preprocessor: `TextEmbedderPreprocessor`, or `None` for data that is
            preprocessed already.
        pooling: `"mean"` of the states of all tokens, special ones included;
            `"weighted"`, their mean with weights 1, 2, 3, ...; `"max"`, the greatest
            value in each dimension; `"last"`, the state of the last token; or `"cls"`,
            the state of the first token (XLNet: the last).
        normalize: bool. Whether vectors get length 1.
        projection_dim: int or `None`. Width of a dense layer after the pooling; `None`
            for none.
        projection_activation: str or `None`. Activation of that layer.
        projection_bias: bool. Whether that layer has a bias.
        projection_in_training_only: bool. Whether only training uses that layer, and
            vectors are otherwise those before it, as in unsupervised SimCSE. Defaults
            to `False`.
        prompts: dict or `None`. Strings that `encode()` puts before texts, by their
            kind: `"query"`, and `"passage"` or `"document"`. Training puts them there,
            too, if its loss distinguishes queries from passages.
        truncate_dim: int or `None`. `encode()`, and so an index, gives this many first
            numbers of each vector, for vectors that were trained with `Matryoshka`.
            With `normalize` they get length 1 again.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, those of the backbone, `(batch, length)`; for tuples,
            such as pairs, `(batch, texts, length)`. Packed rows are `(batch, length)`,
            with `sequence_starts`, int `(batch, max_sequences, texts)`: where the texts
            of each tuple begin. `sequence_ids` number the texts in that order, from 1.
            Rows with one tuple each, as `fit()` makes them, have `sequence_starts` of
            shape `(batch, texts)`.

    Returns:
        float32 tensor `(batch, width)`, for tuples `(batch, texts, width)`, for packed
        rows `(batch, max_sequences, texts, width)`. `width` is `projection_dim`, or
        `hidden_dim` without a projection.

    Raises:
        ValueError: for an unknown `pooling`, or a `truncate_dim` beyond the width.

    `from_preset()` reads the folders of `sentence-transformers`, and
    `export_to_sentence_transformers()` writes one.

    `predict()` takes a list of strings and returns their vectors. `encode()` does the
    same for `retrieval.Index`, with a passage's title before its text. `similarity()`
    compares texts.

    `fit()` takes tuples of lists, or a `tf.data.Dataset` of tuples of strings.
    `fit((queries, passages))`, or `(queries, passages, negatives, ...)`, trains with
    in-batch negatives. `fit((texts, texts))` is unsupervised SimCSE: only dropout makes
    the two vectors of a text differ. `fit((first, second), similarities)` is
    Sentence-BERT's regression objective, the mean squared error of the cosine.
    `compile()` without arguments sets these losses up, with AdamW at 2e-5.
    `compile(loss=...)` takes other losses: `InBatchNegatives` with its arguments,
    `GuidedNegatives`, `CoSENT`, `TripletMargin`, `MarginError`, `ScoreDistillation`,
    `VectorDistillation`, and `Matryoshka` around one of them.

    SimCSE as published has `pooling="cls"` and a projection to `hidden_dim` with
    `"tanh"`. Its unsupervised form drops the projection after training:
    `projection_in_training_only=True`.

    References: [Reimers and Gurevych, 2019](https://arxiv.org/abs/1908.10084), section
    3; [Gao et al., 2021](https://arxiv.org/abs/2104.08821).

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.TextEmbedderPreprocessor(tokenizer)
    model = keras_bertfam.tasks.TextEmbedder(backbone, preprocessor)
    model.predict(["A cat sits.", "A dog."]).shape  # (2, 128)
    model.similarity(["A cat sits."], ["A cat is sitting."])  # [0.97]
    model.fit((["Who purrs?", "Who barks?"], ["A cat.", "A dog."]))
    ```
    """

    pipeline = "sentence-similarity"
    counterpart = BACKBONE

    def __init__(
        self,
        backbone: Model,
        preprocessor: TextEmbedderPreprocessor | None = None,
        pooling: str = "mean",
        normalize: bool = True,
        projection_dim: int | None = None,
        projection_activation: str | None = None,
        projection_bias: bool = True,
        prompts: Mapping[str, str] | None = None,
        projection_in_training_only: bool = False,
        truncate_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        if pooling not in POOLINGS:
            raise ValueError(
                f"`pooling` must be one of {list(POOLINGS)}. "
                f"Received: pooling={pooling!r}."
            )
        if projection_in_training_only and projection_dim is None:
            raise ValueError(
                "`projection_dim` must be a width with `projection_in_training_only`. "
                "Received: projection_dim=None."
            )
        width = backbone.hidden_dim
        if projection_dim is not None and not projection_in_training_only:
            width = projection_dim
        if truncate_dim is not None and truncate_dim > width:
            raise ValueError(
                f"`truncate_dim` must be at most the width of vectors, {width}. "
                f"Received: truncate_dim={truncate_dim}."
            )
        if pooling == "cls":
            check_layout(preprocessor, summary_token(backbone))
        super().__init__(backbone, preprocessor, prompts, **kwargs)
        self.pooling = pooling
        self.normalize = normalize
        self.projection_dim = projection_dim
        self.projection_activation = projection_activation
        self.projection_bias = projection_bias
        self.projection_in_training_only = projection_in_training_only
        self.truncate_dim = truncate_dim
        self.projection = None
        if projection_dim is not None:
            self.projection = keras.layers.Dense(
                projection_dim,
                activation=projection_activation,
                use_bias=projection_bias,
                dtype=backbone.dtype_policy,
                name="projection",
            )
            self.projection.build((None, backbone.hidden_dim))
        self.built = True
        self.compile_by_default()

    def make_vectors(self, inputs: dict[str, Tensor], training: bool | None) -> Tensor:
        shape: Any = (-1,)
        if "sequence_starts" in inputs:
            shape = (-1, *inputs["sequence_starts"].shape[1:])
        elif len(inputs["token_ids"].shape) == 3:
            inputs, shape = flat_rows(inputs)
        if self.pooling == "cls":
            token = summary_token(self.backbone)
            states = summary_states(self.backbone, inputs, token, training)
            vectors = ops.cast(states, "float32")
        else:
            vectors = self._pooled(inputs, training)
        vectors = ops.reshape(vectors, (*shape, self.backbone.hidden_dim))
        projects = training or not self.projection_in_training_only
        if self.projection is not None and projects:
            vectors = ops.cast(self.projection(vectors), "float32")
        return unit(vectors) if self.normalize else vectors

    def _pooled(self, inputs, training):
        """Pool the states of each sequence's tokens."""
        inputs = dict(inputs)
        starts = inputs.pop("sequence_starts", None)
        states = states_of(self.backbone, inputs, training=training)
        states = ops.cast(states, "float32")
        if starts is not None:
            numbers = ops.arange(1, math.prod(starts.shape[1:]) + 1, dtype="int32")
            numbers = ops.reshape(numbers, (1, -1, 1))
            inside = ops.equal(ops.expand_dims(inputs["sequence_ids"], 1), numbers)
        else:
            mask = inputs.get("padding_mask")
            mask = ops.ones(ops.shape(states)[:2]) if mask is None else mask
            inside = ops.expand_dims(mask, 1)
        inside = ops.cast(inside, "float32")  # (batch, sequences, length)
        if self.pooling == "max":
            there = ops.expand_dims(ops.cast(inside, "bool"), -1)
            found = ops.where(there, ops.expand_dims(states, 1), -1e30)
            # A row may have fewer sequences than others.
            return ops.where(ops.any(there, axis=2), ops.max(found, axis=2), 0.0)
        # The place of each token in its sequence, from 1.
        places = ops.cumsum(inside, axis=2) * inside
        total = ops.sum(inside, axis=2, keepdims=True)
        if self.pooling == "weighted":
            weights = places
        elif self.pooling == "last":
            weights = inside * ops.cast(ops.equal(places, total), "float32")
        else:
            weights = inside
        total = ops.maximum(ops.sum(weights, axis=2, keepdims=True), 1.0)
        return ops.matmul(weights, states) / total

    def vector_layers(self) -> list[Any]:
        return [each for each in (self.backbone, self.projection) if each is not None]

    @classmethod
    def _config_from(cls, preset, backbone):
        config = super()._config_from(preset, backbone)
        saved = preset_checks.read_json(preset, preset_checks.TASK_FILE)
        other = saved and keras.saving.get_registered_object(saved["registered_name"])
        if hasattr(
            other, "vector_pooling"
        ):  # the prompts with which its vectors were trained
            config["pooling"] = other.vector_pooling(saved["config"])
        return config

    def _batched(self, data, batch_size, position=None):
        if not isinstance(self.preprocessor, TextEmbedderPreprocessor):
            return super()._batched(data, batch_size, position)
        apart = "sequence_ids" in self.backbone.input_names
        first = self.pooling != "cls" or summary_token(self.backbone) == "first"
        longest = getattr(self.backbone, "max_sequence_length", None) or _LONGEST_ROW
        longest = min(longest, _LONGEST_ROW)
        with self.preprocessor.rows_up_to(longest if apart and first else 0):
            return super()._batched(data, batch_size, position)

    def _encode(self, texts, kind, batch_size, too_long):
        vectors = super()._encode(texts, kind, batch_size, too_long)
        if self.truncate_dim is None:
            return vectors
        vectors = vectors[:, : self.truncate_dim]
        if not self.normalize:
            return vectors
        return ops.convert_to_numpy(unit(ops.convert_to_tensor(vectors)))

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        return cosine(a, b)

    def default_loss(self) -> NegativesOrSimilarities:
        return NegativesOrSimilarities()

    def _passage_parts(self):
        settings: dict[str, Any] = {
            "pooling": self.pooling,
            "normalize": self.normalize,
        }
        if prompt := self.prompt_of("passage"):
            settings["prompt"] = prompt
        if self.truncate_dim is not None:
            settings["truncate_dim"] = self.truncate_dim
        if self.projection is None or self.projection_in_training_only:
            return [self.backbone], settings
        settings["activation"] = self.projection_activation
        return self.vector_layers(), settings

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in _SETTINGS},
        }

    def export_to_sentence_transformers(self, path: Path) -> None:
        """Write a folder from which `SentenceTransformer` gives the same vectors.

        Args:
            path: path of the folder to write.

        Raises:
            ValueError: without a preprocessor, for T5, of which `sentence-transformers`
                reads the encoder's states, for a `layout` that isn't the tokenizer's
                there, and as `export_to_transformers`.
            ImportError: without safetensors, which the `hf` extra installs.

        Example:

        ```python
        model = keras_bertfam.tasks.TextEmbedder.from_preset("my_bert", pooling="cls")
        model.export_to_sentence_transformers("for_sentence_transformers")
        ```
        """
        if self.backbone.record is T5:
            raise ValueError(
                "`backbone` must not be T5's in a folder of sentence-transformers, "
                "which would read other states. Received: a T5Backbone."
            )
        check_exported_layout(self.preprocessor)
        mode = self.pooling
        if mode == "cls" and summary_token(self.backbone) != "first":
            mode = "last"
        sentence_transformers.export(self, path, mode)
