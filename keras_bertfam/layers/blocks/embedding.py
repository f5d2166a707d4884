"""Input embeddings of an encoder: tokens, positions, segments and languages."""

import warnings
from typing import Any, Self

import keras
from keras import ops

from keras_bertfam.layers.blocks.dense import flat_dense
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.layers.blocks.perturbation import perturbed
from keras_bertfam.transformer_config import TransformerConfig, take_settings
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class TokenEmbedding(keras.layers.ReversibleEmbedding):
    """`keras.layers.ReversibleEmbedding` whose gradient is dense.

    TensorFlow gives the gradient of a lookup as `IndexedSlices`, which is slow or fails
    under `tf.distribute`. A tied output projection adds a dense gradient to it anyway.
    Calls are those of the base class.

    Args:
        *args: as in the base class.
        reverse_initializer: initializer of the output table if `tie_weights=False`;
            `None` stands for the input table's initializer.
        **kwargs: as in the base class.

    Example:

    ```python
    from keras_bertfam.layers.blocks.embedding import TokenEmbedding
    embedding = TokenEmbedding(100, 8)
    states = embedding(keras.ops.array([[1, 2, 3]]))  # (1, 3, 8)
    logits = embedding(states, reverse=True)  # (1, 3, 100)
    ```
    """

    def __init__(
        self, *args: Any, reverse_initializer: Initializer = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.reverse_initializer = keras.initializers.get(reverse_initializer)
        self.computed = None

    @property
    def embeddings(self) -> Tensor:
        """The table: a variable, or what `computed` gives in its place."""
        return super().embeddings if self.computed is None else self.computed()

    def save_own_variables(self, store: Any) -> None:
        if self.computed is not None:
            self._embeddings.assign(self.computed())
        super().save_own_variables(store)

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
        own, name = self.reverse_initializer, kwargs.get("name")
        quantized = kwargs.get("dtype") is not None  # holds 0 until it is loaded
        if name == "reverse_embeddings" and own is not None and not quantized:
            kwargs["initializer"] = own
        if name == "embeddings" and not quantized:
            # In 16 bits only the rows of a batch are cast, not the whole table.
            kwargs["autocast"] = False
        return super().add_weight(*args, **kwargs)

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        if reverse:
            if not self.tie_weights or self.logit_soft_cap or self.reverse_dtype:
                return super().call(inputs, reverse=True)
            kernel = ops.cast(ops.transpose(self.embeddings), self.compute_dtype)
            return ops.matmul(ops.cast(inputs, self.compute_dtype), kernel)
        # The gradient of a reshape is dense, whatever arrives at it.
        table = ops.reshape(self.embeddings, (self.input_dim, self.output_dim))
        x = ops.cast(ops.take(table, inputs, axis=0), self.compute_dtype)
        return perturbed(self, x)

    def quantize(
        self, mode: Any = None, type_check: bool = True, config: Any = None
    ) -> None:
        if self.computed is not None:
            raise ValueError(
                "A backbone that reads another model's tables can't be quantised. "
                "`copy_discriminator()` of its task makes a copy with its own tables."
            )
        # With type_check=True Keras refuses subclasses, whose `call` it doesn't know.
        super().quantize(mode, type_check=False, config=config)

    def quantized_build(
        self, embeddings_shape: Shape, mode: str, config: Any = None
    ) -> None:
        super().quantized_build(embeddings_shape, mode, config)
        if mode == "int4" and config is None:
            # Without this Keras would round the inputs of loaded layers only.
            self.inputs_quantizer = None

    def get_config(self) -> Config:
        own = keras.initializers.serialize(self.reverse_initializer)
        return {**super().get_config(), "reverse_initializer": own}


class _Tables(keras.layers.Layer):
    """All tables but that of tokens: a layer, so that saving knows it if shared."""

    def __init__(self, rows, dim, initializer, **kwargs):
        super().__init__(**kwargs)
        self._shapes = {name: (count, dim) for name, count in rows.items() if count}
        self._initializer = initializer
        self.own = {}
        # From a table's name to a function that computes it in place of the weight.
        self.computed = {}

    def build(self, input_shape=None):
        for name, shape in self._shapes.items():
            initializer = self._initializer.clone()
            table = self.add_weight(name=name, shape=shape, initializer=initializer)
            self.own[name] = table
        self.built = True

    @property
    def position_table(self):
        return self._table("position_table")

    @property
    def segment_table(self):
        return self._table("segment_table")

    @property
    def language_table(self):
        return self._table("language_table")

    def _table(self, name):
        compute = self.computed.get(name)
        return self.own.get(name) if compute is None else compute()

    def save_own_variables(self, store):
        for name, compute in self.computed.items():
            self.own[name].assign(compute())
        super().save_own_variables(store)


@keras.saving.register_keras_serializable("keras_bertfam")
class EncoderEmbedding(keras.layers.Layer):
    """Sum of token, position, segment and language embeddings, then norm and dropout.

    If `embedding_dim` differs from `hidden_dim`, the tables are factorised: the sum has
    width `embedding_dim`, is normalised, and is then projected to `hidden_dim`, with a
    bias (ALBERT, section 3.1; ELECTRA, section 3.2).

    Args:
        config: `TransformerConfig`.
        initializer: initializer of every table and kernel.
        reverse_initializer: initializer of the output table if the config has
            `tie_embeddings=False`; `None` stands for `initializer`.
        shared: dict or `None`. Parts of another `EncoderEmbedding` that this one uses
            in place of new ones: any of `token_embedding`, `tables` (of positions,
            segments and languages) and `norm`. `get_config()` leaves them out: a layer
            that is made from the config has parts of its own.

    Call arguments:
        token_ids: int tensor of shape `(batch, length)`.
        segment_ids: int tensor of shape `(batch, length)`; all zero if missing.
        position_ids: int tensor of shape `(batch, length)`, counted from 0;
            `0, 1, 2, ...` if missing.
        padding_mask: bool tensor of shape `(batch, length)`, false for padding, or
            `None`. Encoders whose config has `disentangled` embed padding as zeros.
        language_ids: int tensor of shape `(batch, length)`, -1 for no language, as
            it is for all if missing. Training warns if it is missing, since nothing
            would train the vectors of languages.

    Returns:
        Float tensor of shape `(batch, length, hidden_dim)`.

    Example:

    ```python
    config = keras_bertfam.models.TransformerConfig(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32, embedding_dim=4)
    embedding = keras_bertfam.layers.EncoderEmbedding(config)
    embedding(keras.ops.array([[1, 2, 3]])).shape  # (1, 3, 16)
    ```
    """

    def __init__(
        self,
        config: TransformerConfig,
        initializer: Initializer = "glorot_uniform",
        reverse_initializer: Initializer = None,
        shared: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.initializer = keras.initializers.get(initializer)
        self.reverse_initializer = keras.initializers.get(reverse_initializer)
        common = {"dtype": self.dtype_policy}
        shared = dict(shared or {})
        self.token_embedding = shared.pop("token_embedding", None) or TokenEmbedding(
            config.vocabulary_size,
            config.embedding_dim,
            tie_weights=config.tie_embeddings,
            embeddings_initializer=self._initializer(),
            reverse_initializer=self.reverse_initializer,
            name="token_embedding",
            **common,
        )
        # Rotated positions have no table.
        longest = config.rotary_base is None and config.max_sequence_length
        self.tables = shared.pop("tables", None) or _Tables(
            {
                "position_table": longest and longest + config.position_offset,
                "segment_table": config.num_segments,
                "language_table": config.num_languages,
            },
            config.embedding_dim,
            self._initializer(),
            name="tables",
            **common,
        )
        self.norm = shared.pop("norm", None)
        if self.norm is None and config.embedding_norm:
            self.norm = keras.layers.LayerNormalization(
                epsilon=config.layer_norm_epsilon,
                center=config.norm_bias,
                name="norm",
                **common,
            )
        if shared:
            raise ValueError(
                "`shared` may have the keys 'token_embedding', 'tables' and 'norm'. "
                f"Received: {sorted(shared)}."
            )
        self.dropout = Dropout(config.dropout, name="dropout", **common)
        self.projection = None
        if config.embedding_dim != config.hidden_dim:
            self.projection = keras.layers.Dense(
                config.hidden_dim,
                kernel_initializer=self._initializer(),
                name="projection",
                **common,
            )

    def _initializer(self):
        return self.initializer.clone()

    def build(self, input_shape: Shape) -> None:
        table_shape = (*input_shape, self.config.embedding_dim)
        for part, shape in (
            (self.token_embedding, input_shape),
            (self.tables, None),
            (self.norm, table_shape),
        ):
            if part is not None and not part.built:
                part.build(shape)
        if self.projection is not None:
            self.projection.build(table_shape)
        self.built = True

    @property
    def position_table(self) -> Any:
        return self.tables.position_table

    @property
    def segment_table(self) -> Any:
        return self.tables.segment_table

    @property
    def language_table(self) -> Any:
        return self.tables.language_table

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
        language_ids: Tensor | None = None,
    ) -> Tensor:
        self._check_length(token_ids)
        x = self.token_embedding(token_ids)
        if self.position_table is not None:
            x = x + self.position_vectors(token_ids, position_ids)
        if self.segment_table is not None:
            x = x + self._segments(segment_ids)
        if self.language_table is not None and language_ids is not None:
            x = x + _rows_of(self.language_table, language_ids, self.compute_dtype)
        elif self.language_table is not None and training and self.trainable:
            warnings.warn(
                "The batch has no `language_ids`, so nothing trains the vectors of "
                f"num_languages={self.config.num_languages} languages. "
                "`MaskedLMPreprocessor(languages=...)` gives them. A backbone with "
                "num_languages=0 has no such vectors.",
                stacklevel=2,
            )
        x = perturbed(self, x)
        if self.norm is not None:
            x = self.norm(x)
        if padding_mask is not None and self.config.disentangled is not None:
            x = x * ops.expand_dims(ops.cast(padding_mask, x.dtype), -1)
        x = self.dropout(x, training=training)
        if self.projection is not None:
            x = flat_dense(self.projection, x)
        return x

    def _check_length(self, token_ids):
        length, longest = token_ids.shape[1], self.config.max_sequence_length
        if length is not None and longest is not None and length > longest:
            raise ValueError(
                "`token_ids` is longer than there are positions. Expected at "
                f"most max_sequence_length={longest} tokens. "
                f"Received: token_ids.shape={tuple(token_ids.shape)}."
            )

    def position_vectors(self, token_ids: Tensor, position_ids: Tensor | None) -> Any:
        """Look up the vectors of positions.

        Args:
            token_ids: see the call.
            position_ids: see the call.

        Returns:
            Float tensor `(batch, length, width)`; `(length, width)` without
            `position_ids`, for the positions `0, 1, 2, ...`.
        """
        table = ops.cast(self.position_table, self.compute_dtype)
        if position_ids is None:
            end = self.config.position_offset + ops.shape(token_ids)[1]
            return table[self.config.position_offset : end]
        table = ops.reshape(table, tuple(self.position_table.shape))
        return ops.take(table, position_ids + self.config.position_offset, axis=0)

    def _segments(self, segment_ids):
        table = ops.cast(self.segment_table, self.compute_dtype)
        # RoBERTa's checkpoints have one segment, also for pairs.
        if segment_ids is None or self.config.num_segments == 1:
            return table[0]
        return _rows_of(table, segment_ids, self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape, **kwargs: Any) -> Shape:
        return (*input_shape, self.config.hidden_dim)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            **vars(self.config),
            "initializer": keras.initializers.serialize(self.initializer),
            "reverse_initializer": keras.initializers.serialize(
                self.reverse_initializer
            ),
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        settings, others = take_settings(config)
        # Older files have single settings in place of a whole config.
        if not others.pop("learned_positions", True):
            settings["rotary_base"] = 10_000.0
        return cls(TransformerConfig.of_part(**settings), **others)


def _rows_of(table, ids, dtype):
    """Look up rows of a small table, zeros for -1."""
    table = ops.cast(table, dtype)
    # Not `one_hot`: that of ONNX counts -1 from the table's end.
    ids = ops.expand_dims(ops.cast(ids, "int32"), -1)
    own = ops.equal(ids, ops.arange(table.shape[0], dtype="int32"))
    return ops.matmul(ops.cast(own, table.dtype), table)
