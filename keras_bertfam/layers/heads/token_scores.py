"""Cross-entropy and accuracy of tokens, without keeping their logits."""

from collections.abc import Callable, Sequence

import keras
from keras import ops

from keras_bertfam.types import Tensor

# The most logits that are computed at a time, 256 MiB in float32. A batch of GPT-2 has
# fewer. Chunks would cost it one more product, a quarter of the projection's time.
MOST_LOGITS = 2**26


def crossentropy(token_ids: Tensor, logits: Tensor) -> Tensor:
    """Compute the cross-entropy of each position, in nats.

    Args:
        token_ids: int32 tensor of shape `(...)`.
        logits: float32 tensor of shape `(..., vocabulary_size)`.

    Returns:
        float32 tensor of shape `(...)`.
    """
    if keras.backend.backend() == "tensorflow":  # one kernel, with its gradient
        return ops.sparse_categorical_crossentropy(token_ids, logits, from_logits=True)
    indices = ops.expand_dims(token_ids, -1)
    if keras.backend.backend() == "torch":  # its log_softmax is one fast kernel
        log_probabilities = ops.log_softmax(logits, axis=-1)
        return -ops.squeeze(ops.take_along_axis(log_probabilities, indices, -1), -1)
    picked = ops.take_along_axis(logits, indices, axis=-1)
    return ops.logsumexp(logits, axis=-1) - ops.squeeze(picked, -1)


def scores_of_logits(
    token_ids: Tensor, logits: Tensor, statistics: bool = False
) -> Tensor:
    """Compute what `token_scores` gives, from given logits.

    Args:
        token_ids: int tensor of shape `(...)`.
        logits: float tensor of shape `(..., vocabulary_size)`.
        statistics: bool.

    Returns:
        float32 tensor of shape `(..., 2)`, with `statistics` `(..., 4)`.
    """
    token_ids, logits = ops.cast(token_ids, "int32"), ops.cast(logits, "float32")
    right = ops.cast(_are_likeliest(token_ids, logits), "float32")
    scores = [crossentropy(token_ids, logits), right]
    if statistics:
        scores += [ops.logsumexp(logits, axis=-1), ops.mean(logits, axis=-1)]
    return ops.stack(scores, axis=-1)


def _are_likeliest(token_ids, logits):
    """Tell where `argmax(logits)` is the token, in less time than `argmax` takes."""
    if keras.backend.backend() == "torch":
        return ops.equal(logits.max(-1).indices, token_ids)
    count = logits.shape[-1]
    ids = ops.expand_dims(ops.clip(token_ids, 0, count - 1), -1)
    own = ops.take_along_axis(logits, ids, axis=-1)
    # Of equal logits `argmax` takes the first.
    is_earlier = ops.less(ops.arange(count, dtype="int32"), ids)
    is_above = ops.where(is_earlier, logits >= own, logits > own)
    is_token = ops.equal(ops.squeeze(ids, -1), token_ids)
    return ops.logical_and(is_token, ops.logical_not(ops.any(is_above, axis=-1)))


def token_scores(
    states: Tensor,
    table: Tensor,
    bias: Tensor | None,
    token_ids: Tensor,
    statistics: bool = False,
) -> Tensor:
    """Compute each token's cross-entropy by a projection, and whether it is right.

    Values and gradients are those of `scores_of_logits` for the logits `states @
    table.T + bias`. If there are more than `MOST_LOGITS`, they are computed in chunks
    of positions, and again for the gradient. So memory doesn't grow with positions
    times vocabulary.

    Args:
        states: float tensor of shape `(positions, width)`.
        table: float tensor of shape `(vocabulary_size, width)`.
        bias: float tensor of shape `(vocabulary_size,)`, or `None`.
        token_ids: int tensor of shape `(positions,)`, the right tokens.
        statistics: bool. Whether to give the logits' log-sum-exp and mean as well.

    Returns:
        float32 tensor of shape `(positions, 2)`: the cross-entropy in nats; and 1 if
        the likeliest token is the right one, else 0, without a gradient. With
        `statistics` the shape is `(positions, 4)`.

    Example:

    ```python
    from keras_bertfam.layers.heads.token_scores import token_scores

    table = keras.ops.eye(4) * 9.0
    token_scores(table[:2], table, None, keras.ops.array([0, 2]))  # [[0, 1], [81, 0]]
    ```
    """

    def scores(states, token_ids, table, *biases):
        logits = ops.cast(ops.matmul(states, ops.transpose(table)), "float32")
        for bias in biases:
            logits += ops.cast(bias, "float32")
        return scores_of_logits(token_ids, logits, statistics)

    parameters = (table,) if bias is None else (table, bias)
    return in_chunks(scores, states, token_ids, parameters, table.shape[0])


def in_chunks(
    scores: Callable[..., Tensor],
    states: Tensor,
    token_ids: Tensor,
    parameters: Sequence[Tensor],
    logits_each: int,
) -> Tensor:
    """Compute scores in chunks of positions that have at most `MOST_LOGITS` logits.

    Args:
        scores: function of states, ids and parameters. It is computed again for the
            gradient.
        states: float tensor of shape `(positions, width)`.
        token_ids: int tensor of shape `(positions,)`.
        parameters: tensors.
        logits_each: int. Number of logits of a position.

    Returns:
        What `scores` gives for all positions, of shape `(positions, columns)`.
    """
    token_ids = ops.cast(token_ids, "int32")
    positions = ops.shape(states)[0]
    most = max(1, MOST_LOGITS // logits_each)
    if isinstance(positions, int) and positions <= most:
        return scores(states, token_ids, *parameters)
    chunks = -(-positions // most)
    if not isinstance(positions, int):  # in a graph; there may be none
        chunks = ops.maximum(chunks, 1)
    each = -(-positions // chunks)  # chunks of equal size; the last is almost full
    fill = chunks * each - positions
    states = ops.concatenate([states, ops.zeros((fill, states.shape[1]), states.dtype)])
    token_ids = ops.concatenate([token_ids, ops.zeros((fill,), "int32")])
    states = ops.reshape(states, (chunks, each, states.shape[1]))
    token_ids = ops.reshape(token_ids, (chunks, each))

    def of_chunk(chunk):
        states, ids = chunk
        # TensorFlow logs a warning for integers among the arguments.
        again = keras.remat(lambda states, *rest: scores(states, ids, *rest))
        return again(states, *parameters)

    of_chunks = ops.map(of_chunk, (states, token_ids))
    return ops.reshape(of_chunks, (-1, of_chunks.shape[-1]))[:positions]
