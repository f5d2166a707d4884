"""Scores of pairs of words, for dependency parsing: arcs and their relations."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dense import take_positions
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class BiaffineHead(keras.layers.Layer):
    """Scores of each word's possible heads, and of the relations to them.

    A state goes through four dense layers with ELU. They give two vectors for arcs, of
    the word as a dependent (`d`) and as a head (`h`), and two such vectors for
    relations. The score of an arc is the biaffine form `[d; 1] W h`. The score of a
    relation is `[d; 1] W [h; 1]`, with its own `W`. The root is a learned state.

    Args:
        num_classes: int. The number of relations.
        arc_dim: int. Width of the vectors for arcs. Defaults to `500`.
        relation_dim: int. Width of the vectors for relations. Defaults to `100`.
        dropout: float. Dropout rate of states and of the perceptrons' outputs. Defaults
            to `0.33`.
        initializer: initializer of the kernels and of the root.

    Call arguments:
        states: float tensor `(batch, words, width)`.
        heads: int tensor `(batch, words)`, or `None`. The number of each word's head:
            words count from 1, and 0 is the root.

    Returns:
        A tuple of two float32 tensors. Scores of arcs, `(batch, words, words + 1)`; a
        word's first score is the root's. Logits of relations: with `heads` those of the
        given arcs, `(batch, words, num_classes)`; without those of all arcs, `(batch,
        words, words + 1, num_classes)`.

    Example:

    ```python
    from keras_bertfam.layers.heads.biaffine import BiaffineHead
    head = BiaffineHead(num_classes=3)
    arcs, relations = head(keras.random.normal((2, 5, 8)))
    arcs.shape, relations.shape  # (2, 5, 6), (2, 5, 6, 3)
    ```

    Reference: [Dozat and Manning, 2016](https://arxiv.org/abs/1611.01734), section
    3.2. ELU and the learned root are as in AllenNLP.
    """

    def __init__(
        self,
        num_classes: int,
        arc_dim: int = 500,
        relation_dim: int = 100,
        dropout: float = 0.33,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.arc_dim = arc_dim
        self.relation_dim = relation_dim
        self.dropout = dropout
        self.initializer = keras.initializers.get(initializer)
        self.arc_dependent = self._dense(arc_dim, "arc_dependent")
        self.arc_head = self._dense(arc_dim, "arc_head")
        self.relation_dependent = self._dense(relation_dim, "relation_dependent")
        self.relation_head = self._dense(relation_dim, "relation_head")
        self._dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        # A biaffine form is a dense layer on one side's vectors, then a product.
        self.arcs = keras.layers.Dense(
            arc_dim,
            kernel_initializer="zeros",
            dtype=self.dtype_policy,
            name="arcs",
        )
        self.relations = keras.layers.Dense(
            num_classes * (relation_dim + 1),
            kernel_initializer=self.initializer.clone(),
            dtype=self.dtype_policy,
            name="relations",
        )

    def _dense(self, units, name):
        return keras.layers.Dense(
            units,
            activation="elu",
            kernel_initializer=self.initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        self.root = self.add_weight(
            name="root", shape=(width,), initializer=self.initializer.clone()
        )
        for name in _SIDES:
            getattr(self, name).build((None, None, width))
        self.arcs.build((None, None, self.arc_dim))
        self.relations.build((None, None, self.relation_dim))
        self.built = True

    def call(
        self,
        states: Tensor,
        heads: Tensor | None = None,
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor]:
        states = self._dropout(states, training=training)
        batch, words, width = ops.shape(states)
        root = ops.cast(self.root, self.compute_dtype)
        root = ops.broadcast_to(ops.reshape(root, (1, 1, -1)), (batch, 1, width))
        rooted = ops.concatenate([root, states], axis=1)
        sides = {
            name: self._dropout(
                getattr(self, name)(rooted if name.endswith("_head") else states),
                training=training,
            )
            for name in _SIDES
        }
        arcs = ops.matmul(
            self.arcs(sides["arc_dependent"]),
            ops.transpose(sides["arc_head"], (0, 2, 1)),
        )
        forms = self.relations(sides["relation_dependent"])
        of_heads = _with_one(sides["relation_head"])
        if heads is None:
            forms = ops.reshape(forms, (batch, words * self.num_classes, -1))
            logits = ops.matmul(forms, ops.transpose(of_heads, (0, 2, 1)))
            shape = (batch, words, self.num_classes, words + 1)
            logits = ops.transpose(ops.reshape(logits, shape), (0, 1, 3, 2))
        else:
            forms = ops.reshape(forms, (batch, words, self.num_classes, -1))
            of_heads = ops.expand_dims(take_positions(of_heads, heads), -1)
            logits = ops.matmul(forms, of_heads)[..., 0]
        return ops.cast(arcs, "float32"), ops.cast(logits, "float32")

    def compute_output_shape(
        self, states_shape: Shape, heads_shape: Shape | None = None
    ) -> tuple[Shape, Shape]:
        batch, words = states_shape[:2]
        more = None if words is None else words + 1
        arcs = (batch, words, more)
        if heads_shape is not None:
            return arcs, (batch, words, self.num_classes)
        return arcs, (*arcs, self.num_classes)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "arc_dim": self.arc_dim,
            "relation_dim": self.relation_dim,
            "dropout": self.dropout,
            "initializer": keras.initializers.serialize(self.initializer),
        }


_SIDES = ("arc_dependent", "arc_head", "relation_dependent", "relation_head")


def _with_one(x):
    return ops.concatenate([x, ops.ones_like(x[..., :1])], axis=-1)
