"""Logits over a large vocabulary, of which training sees a sample."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.heads.tied_logits import TiedLogits
from keras_bertfam.types import Config, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SampledLogits(TiedLogits):
    """`TiedLogits` whose cross-entropy in training is that of a sampled softmax.

    All positions are compared with the same `num_sampled` tokens, drawn with
    replacement from `p(k) = log((k + 2) / (k + 1)) / log(vocabulary_size + 1)`, so that
    ids must be in the order of frequency. `log(num_sampled * p(k))` is subtracted from
    their logits, by which their sum is that of all others on average; a draw that is a
    position's own token is left out there.

    Args:
        token_embedding: see `TiedLogits`.
        num_sampled: int or `None` for the full softmax.
        seed: int or `None`.

    Call arguments:
        x, targets, statistics: see `TiedLogits`. Whether a token is the likeliest is
            told among the sampled ones, in training.

    Returns:
        See `TiedLogits`.

    Raises:
        ValueError: for a `num_sampled` that isn't positive, or a sample's `statistics`.

    Example:

    ```python
    from keras_bertfam.layers.blocks.embedding import TokenEmbedding
    from keras_bertfam.layers.heads.sampled_logits import SampledLogits
    embedding = TokenEmbedding(1000, 8)
    embedding.build()
    layer = SampledLogits(embedding, num_sampled=64)
    x, targets = keras.random.normal((2, 5, 8)), keras.ops.ones((2, 5), "int32")
    layer(x, targets=targets, training=True).shape  # (2, 5, 2)
    ```

    References: [Jean et al., 2014](https://arxiv.org/abs/1412.2007), section 3;
    [Peters et al., 2018](https://arxiv.org/abs/1802.05365), released code.
    """

    def __init__(
        self,
        token_embedding: TokenEmbedding,
        num_sampled: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(token_embedding, **kwargs)
        if num_sampled is not None and num_sampled < 1:
            raise ValueError(
                "`num_sampled` must be positive, or `None` for all. "
                f"Received: num_sampled={num_sampled}."
            )
        self.num_sampled = num_sampled
        self.seed = seed
        self.seed_generator = None
        if num_sampled is not None:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def call(
        self,
        x: Tensor,
        targets: Tensor | None = None,
        statistics: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        if targets is None or self.num_sampled is None or not training:
            return super().call(x, targets, statistics)
        if statistics:
            raise ValueError(
                "`statistics` must be `False` where logits are sampled. Received: True."
            )
        shape = ops.shape(x)
        x = ops.reshape(x, (-1, shape[-1]))
        targets = ops.reshape(ops.cast(targets, "int32"), (-1,))
        return ops.reshape(self._sampled_scores(x, targets), (*shape[:-1], 2))

    def _sampled_scores(self, x, targets):
        size = self.token_embedding.input_dim
        drawn = keras.random.uniform((self.num_sampled,), seed=self.seed_generator)
        drawn = ops.exp(drawn * float(np.log(size + 1.0))) - 1
        drawn = ops.clip(ops.cast(drawn, "int32"), 0, size - 1)
        table = self.token_embedding.embeddings
        # The gradient of a reshape is dense, whatever arrives at it.
        table = ops.cast(ops.reshape(table, ops.shape(table)), x.dtype)
        bias = ops.cast(ops.convert_to_tensor(self.bias), "float32")

        right = ops.sum(x * ops.take(table, targets, axis=0), axis=-1)
        right = ops.cast(right, "float32") + ops.take(bias, targets, axis=0)
        others = ops.matmul(x, ops.transpose(ops.take(table, drawn, axis=0)))
        others = ops.cast(others, "float32") + ops.take(bias, drawn, axis=0)
        others = others - self._log_expected(drawn)
        hit = ops.equal(ops.expand_dims(targets, -1), drawn)
        others = ops.where(hit, ops.cast(-1e30, "float32"), others)
        right = ops.expand_dims(right, -1)
        total = ops.logsumexp(ops.concatenate([right, others], axis=-1), axis=-1)
        best = ops.cast(ops.max(others, axis=-1) <= right[:, 0], "float32")
        return ops.stack([total - right[:, 0], best], axis=-1)

    def _log_expected(self, ids):
        """Compute the logarithm of how often each id is drawn, on average."""
        ids = ops.cast(ids, "float32")
        share = ops.log1p(1 / (ids + 1)) / float(
            np.log(self.token_embedding.input_dim + 1.0)
        )
        return ops.log(share * self.num_sampled)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_sampled": self.num_sampled,
            "seed": self.seed,
        }
