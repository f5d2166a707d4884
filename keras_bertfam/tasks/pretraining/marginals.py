"""How likely targets are over several passages: the sums in which losses differ."""

from keras import ops

from keras_bertfam.types import Tensor

# The product over tokens inside the sum over passages, or the sum inside the product.
MARGINALIZATIONS = ("sequence", "token")


def check_marginalization(marginalization: str) -> str:
    """The name of a way to marginalise.

    Raises:
        ValueError: for another than those of `MARGINALIZATIONS`.
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
    """`log sum_z p(z) prod_j p(y_j | z)` of each row, as if one passage wrote it all.

    Args:
        scores: float tensor `(batch, passages)`, whose softmax is `p(z)`.
        log_likelihoods: float tensor `(batch, passages, tokens)`, `log p(y_j | z)`.
        weights: float tensor `(batch, tokens)`, 0 for tokens that are left out; `None`
            for all.

    Returns:
        float32 tensor `(batch,)`.

    Example:

    ```python
    from keras_bertfam.tasks.pretraining.marginals import sequence_marginal

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
    """`log sum_z p(z) p(y_j | z)` of each token, as if each had a passage of its own.

    Args:
        scores: float tensor `(batch, passages)`, whose softmax is `p(z)`.
        log_likelihoods: float tensor `(batch, passages, ...)`, `log p(y_j | z)`.

    Returns:
        float32 tensor `(batch, ...)`.

    Example:

    ```python
    from keras_bertfam.tasks.pretraining.marginals import token_marginal

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


def _log_prior(scores):
    return ops.log_softmax(ops.cast(scores, "float32"), axis=-1)


def token_losses(
    marginalization: str, scores: Tensor, log_likelihoods: Tensor, weights: Tensor
) -> Tensor:
    """Losses of tokens, whose weighted sum is that of the rows.

    Args:
        marginalization: one of `MARGINALIZATIONS`. Of `"sequence"` each token of a
            row has an equal part of the row's loss.
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
