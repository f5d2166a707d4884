"""Tables that are another model's, without its gradient, and a difference."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.types import Config, Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class TableDifferences(keras.layers.Layer):
    """What the embedding tables of one model have beyond another model's.

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
    """Let embeddings read the tables of others, and differences that are trained.

    The others' tables begin as these are, and the differences as zeros. No gradient
    goes to the others.

    Args:
        ours: `EncoderEmbedding`. Its own tables stay as they are, untrained; what is
            saved in their place are the sums.
        theirs: `EncoderEmbedding`.
        all_tables: bool. Whether positions, segments and languages are among them.

    Returns:
        `TableDifferences`.

    Example: a weight of 1 in both, and gradients of 0.5 to the generator and 2 to the
    discriminator. After a step of SGD at a rate of 0.1 the generator has 0.95, the
    difference is -0.2, and the discriminator has 0.75.

    Reference: [He et al., 2021](https://arxiv.org/abs/2111.09543), section 3.3.
    """
    if ours.token_embedding.computed is not None:
        raise ValueError(
            "`backbone` must be in one task whose tables are shared. Received: one "
            "whose tables are computed already."
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
    """List a backbone's weights, with the sums in place of tables that are computed."""
    embeddings: Any = backbone.embeddings
    token, tables = embeddings.token_embedding, embeddings.tables
    computed = {id(tables.own[n]): f for n, f in tables.computed.items()}
    if token.computed is not None:
        computed[id(token._embeddings)] = token.computed
    return [
        computed[id(v)]() if id(v) in computed else v.value for v in backbone.weights
    ]
