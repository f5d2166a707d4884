"""Marginalise over passages: sum the targets' probabilities over all of them."""

from keras import ops

from keras_bertfam.layers.heads.span_heads import NOWHERE
from keras_bertfam.types import Tensor

# `"sequence"`: the product over tokens is inside the sum over passages; `"token"`: the
# sum is inside the product.
MARGINALIZATIONS = ("sequence", "token")
# `"passage"`: the probabilities of each passage's spans sum to 1; `"joint"`: those of
# all spans do.
NORMALIZATIONS = ("passage", "joint")


def check_marginalization(marginalization: str) -> str:
    """Check the name of a way to marginalise, and return it.

    Raises:
        ValueError: for a name that isn't in `MARGINALIZATIONS`.
    """
    if marginalization not in MARGINALIZATIONS:
        raise ValueError(
            f"`marginalization` must be one of {MARGINALIZATIONS}. "
            f"Received: marginalization={marginalization!r}."
        )
    return marginalization


def sequence_marginal(
    scores: Tensor, log_likelihoods: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Sum over passages as if a single one wrote the whole row.

    The result is `log sum_z p(z) prod_j p(y_j | z)` of each row.

    Args:
        scores: float tensor `(batch, passages)`, whose softmax is `p(z)`.
        log_likelihoods: float tensor `(batch, passages, tokens)`, `log p(y_j | z)`.
        weights: float tensor `(batch, tokens)`, 0 for tokens that are left out; `None`
            keeps all.

    Returns:
        float32 tensor `(batch,)`.

    Example:

    ```python
    from keras_bertfam.tasks.retrieval.marginals import sequence_marginal

    p, tokens = [[0.6, 0.4]], [[[0.5, 0.2], [0.1, 0.9]]]
    sequence_marginal(keras.ops.log(p), keras.ops.log(tokens))  # log 0.096
    ```

    References: [Lewis et al., 2020](https://arxiv.org/abs/2005.11401), section 2.1,
    RAG-Sequence; [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.1.
    """
    log_likelihoods = ops.cast(log_likelihoods, "float32")
    if weights is not None:
        inside = ops.expand_dims(ops.cast(weights, "float32") > 0, 1)
        log_likelihoods = ops.where(inside, log_likelihoods, 0.0)
    return ops.logsumexp(_log_prior(scores) + ops.sum(log_likelihoods, -1), axis=1)


def token_marginal(scores: Tensor, log_likelihoods: Tensor) -> Tensor:
    """Sum over passages as if each token had its own passage.

    The result is `log sum_z p(z) p(y_j | z)` of each token.

    Args:
        scores: float tensor `(batch, passages)`, whose softmax is `p(z)`.
        log_likelihoods: float tensor `(batch, passages, ...)`, `log p(y_j | z)`.

    Returns:
        float32 tensor `(batch, ...)`.

    Example:

    ```python
    from keras_bertfam.tasks.retrieval.marginals import token_marginal

    p, tokens = [[0.6, 0.4]], [[[0.5, 0.2], [0.1, 0.9]]]
    token_marginal(keras.ops.log(p), keras.ops.log(tokens))  # log 0.34, log 0.48
    ```

    References: [Lewis et al., 2020](https://arxiv.org/abs/2005.11401), section 2.1,
    RAG-Token; [Guu et al., 2020](https://arxiv.org/abs/2002.08909), released code.
    """
    log_likelihoods = ops.cast(log_likelihoods, "float32")
    prior = _log_prior(scores)
    axes = range(2, len(log_likelihoods.shape))
    return ops.logsumexp(ops.expand_dims(prior, [*axes]) + log_likelihoods, axis=1)


def next_token_marginal(
    scores: Tensor, log_likelihoods: Tensor, log_probabilities: Tensor
) -> Tensor:
    """Predict each token from all passages, as likely as the tokens before make them.

    The result is `log p(y_j | y_1 ... y_j-1)`, where a single passage writes the whole
    row. The sum over tokens of those that are written is `sequence_marginal`.

    Args:
        scores: float tensor `(batch, passages)`, whose softmax is `p(z)`.
        log_likelihoods: float tensor `(batch, passages, tokens)`, `log p(y_j | z)`; 0
            for tokens that are left out.
        log_probabilities: float tensor `(batch, passages, tokens, vocabulary_size)`,
            those of all tokens that could be written.

    Returns:
        float32 tensor `(batch, tokens, vocabulary_size)`.

    Example:

    ```python
    from keras_bertfam.tasks.retrieval.marginals import next_token_marginal

    p, tokens = [[0.6, 0.4]], [[[0.5, 0.2], [0.1, 0.9]]]  # log 0.096, as above
    every = [[[[0.5, 0.5], [0.2, 0.8]], [[0.1, 0.9], [0.9, 0.1]]]]
    p, tokens, every = map(keras.ops.log, (p, tokens, every))
    next_token_marginal(p, tokens, every)  # log 0.34 and log 0.096 / 0.34 are written
    ```

    References: [Lewis et al., 2020](https://arxiv.org/abs/2005.11401), section 2.1,
    RAG-Sequence, by the chain rule.
    """
    log_likelihoods = ops.cast(log_likelihoods, "float32")
    before = ops.cumsum(log_likelihoods, axis=-1) - log_likelihoods
    known = _log_prior(ops.expand_dims(_log_prior(scores), -1) + before, axis=1)
    log_probabilities = ops.cast(log_probabilities, "float32")
    return ops.logsumexp(ops.expand_dims(known, -1) + log_probabilities, axis=1)


def _log_prior(scores, axis=-1):
    return ops.log_softmax(ops.cast(scores, "float32"), axis=axis)


def token_losses(
    marginalization: str, scores: Tensor, log_likelihoods: Tensor, weights: Tensor
) -> Tensor:
    """Compute losses of tokens whose weighted sum is the loss of the rows.

    Args:
        marginalization: one of `MARGINALIZATIONS`. With `"sequence"`, each token of a
            row gets an equal part of the row's loss.
        scores: float tensor `(batch, passages)`.
        log_likelihoods: float tensor `(batch, passages, tokens)`.
        weights: float tensor `(batch, tokens)`; 0 leaves a token out.

    Returns:
        float32 tensor `(batch, tokens)`.
    """
    if marginalization == "token":
        return -token_marginal(scores, log_likelihoods)
    rows = -sequence_marginal(scores, log_likelihoods, weights)
    inside = ops.cast(ops.cast(weights, "float32") > 0, "float32")
    share = inside / ops.maximum(ops.sum(inside, -1, keepdims=True), 1.0)
    return ops.expand_dims(rows, -1) * share


def span_log_probabilities(
    scores: Tensor, span_scores: Tensor, normalization: str = "passage"
) -> Tensor:
    """Compute `log p(z, s)` of each span of each passage.

    Args:
        scores: float tensor `(batch, passages)`.
        span_scores: float tensor `(batch, passages, length, spans)`, -1e30 where there
            is no span.
        normalization: `"passage"`: `p(z) p(s | z)`, with the softmax of the spans of
            each passage; `"joint"`: one softmax of all spans of all passages, whose
            scores are the sums of both.

    Returns:
        float32 tensor of the shape of `span_scores`, -1e30 where there is no span.

    Raises:
        ValueError: for an unknown `normalization`.

    Example:

    ```python
    from keras_bertfam.tasks.retrieval.marginals import span_log_probabilities

    p, spans = [[0.6, 0.4]], [[[[0.5, 0.5]], [[0.9, 0.1]]]]
    log_p = span_log_probabilities(keras.ops.log(p), keras.ops.log(spans))
    keras.ops.exp(log_p)  # [[[[0.3, 0.3]], [[0.36, 0.04]]]]
    ```

    References: [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.2;
    [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 3.2.
    """
    check_normalization(normalization)
    span_scores = ops.cast(span_scores, "float32")
    if normalization == "passage":
        prior = ops.expand_dims(_log_prior(scores), [2, 3])
        found = prior + _log_softmax_over(span_scores, (2, 3))
    else:
        scores = ops.expand_dims(ops.cast(scores, "float32"), [2, 3])
        found = _log_softmax_over(scores + span_scores, (1, 2, 3))
    return ops.where(span_scores > NOWHERE / 2, found, NOWHERE)


def _log_softmax_over(x, axes):
    return x - ops.logsumexp(x, axis=axes, keepdims=True)


def check_normalization(normalization: str) -> None:
    """Raise a `ValueError` for a name that isn't in `NORMALIZATIONS`."""
    if normalization not in NORMALIZATIONS:
        raise ValueError(
            f"`normalization` must be one of {NORMALIZATIONS}. "
            f"Received: normalization={normalization!r}."
        )


def answer_marginal(log_probabilities: Tensor, targets: Tensor) -> Tensor:
    """Compute the log of the sum of the targets' probabilities in each row.

    Args:
        log_probabilities: float tensor `(batch, ...)`.
        targets: bool tensor of that shape.

    Returns:
        float32 tensor `(batch,)`; -1e30 for a row without a target.
    """
    masked = ops.where(targets, log_probabilities, NOWHERE)
    return ops.logsumexp(masked, axis=tuple(range(1, len(masked.shape))))
