"""Embedding tables that are another model's tables plus a trained difference."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.types import Config, Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class TableDifferences(keras.layers.Layer):
    """The differences between the embedding tables of two models, as weights.

    Args:
        shapes: dict from names of tables to their shapes.

    Example:

    ```python
    from keras_bertfam.layers.blocks.table_differences import TableDifferences
    TableDifferences({"token_table": (100, 8)}).tables["token_table"].shape  # (100, 8)
    ```
    """

    def __init__(self, shapes: dict[str, tuple[int, int]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self.tables = {
            name: self.add_weight(name=name, shape=shape, initializer="zeros")
            for name, shape in self.shapes.items()
        }
        self.built = True

    def get_config(self) -> Config:
        shapes = {name: list(shape) for name, shape in self.shapes.items()}
        return {**super().get_config(), "shapes": shapes}


def disentangled(ours: Any, theirs: Any, all_tables: bool) -> TableDifferences:
    """Let one model's embeddings be another's plus a trained difference.

    It is DeBERTa's gradient-disentangled embedding sharing. `ours` are the
    discriminator's embeddings, `theirs` the generator's. Here `theirs` get the values
    of `ours`, and the differences begin as zeros. The gradient of `ours` goes to the
    differences only, never to `theirs`.

    Example: a weight of 1 in both, and gradients of 0.5 to the generator and 2 to the
    discriminator. After a step of SGD at a rate of 0.1 the generator has 0.95, the
    difference is -0.2, and the discriminator has 0.75.

    Args:
        ours: `EncoderEmbedding`. Its own tables are no longer used or trained. Saved
            files hold the sums in their place.
        theirs: `EncoderEmbedding`.
        all_tables: bool. Whether the tables of positions, segments and languages are
            shared in this way too; if not, only the tokens'.

    Returns:
        `TableDifferences`.

    Raises:
        ValueError: if `ours` is the sum of two tables already.

    Reference: [He et al., 2021](https://arxiv.org/abs/2111.09543), section 3.3.
    """
    if ours.token_embedding.computed is not None:
        raise ValueError(
            "`backbone` must not be in another task that shares its embedding tables. "
            "Received: a backbone whose tables are sums already."
        )
    pairs = {"token_table": (ours.token_embedding, theirs.token_embedding)}
    if all_tables:
        pairs |= {
            name: (ours.tables, theirs.tables)
            for name in ("position_table", "segment_table", "language_table")
            if getattr(ours.tables, name) is not None
        }
    variables = {
        name: tuple(_variable(layer, name) for layer in layers)
        for name, layers in pairs.items()
    }
    differences = TableDifferences(
        {name: tuple(own.shape) for name, (own, _) in variables.items()},
        dtype=ours.dtype_policy,
        name="differences",
    )
    for name, (own, base) in variables.items():
        base.assign(ops.copy(own))  # JAX would share the buffer
        own.trainable = False

        def compute(base=base, difference=differences.tables[name]):
            return ops.stop_gradient(ops.convert_to_tensor(base)) + difference

        layer = pairs[name][0]
        if name == "token_table":
            layer.computed = compute
        else:
            layer.computed[name] = compute
    return differences


def _variable(layer, name):
    return layer.embeddings if name == "token_table" else getattr(layer, name)


def merged_weights(backbone: Model) -> list[Tensor]:
    """List a backbone's weights, with sums in place of shared tables."""
    embeddings: Any = backbone.embeddings
    token, tables = embeddings.token_embedding, embeddings.tables
    computed = {id(tables.own[n]): f for n, f in tables.computed.items()}
    if token.computed is not None:
        computed[id(token._embeddings)] = token.computed
    return [
        computed[id(v)]() if id(v) in computed else v.value for v in backbone.weights
    ]
