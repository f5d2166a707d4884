"""What a training step of masked language modelling costs by arithmetic.

A product of `(a, b)` and `(b, c)` matrices is `2abc` operations, and the gradient of a
product is two more. Lookups, norms, softmax and the optimizer aren't counted: they are
no products. `size` is a `benchmarks.training.Size`.
"""


def parameters(size):
    """Weights of the encoder, the embeddings and the head, without biases and norms."""
    width = size.hidden_dim
    tables = size.vocabulary_size + size.architecture["max_sequence_length"] + 2
    return 12 * size.num_layers * width**2 + tables * width + width**2


def step_flops(size, gathered=True):
    """Operations of a step: forward and backward.

    Args:
        size: `Size`, whose rows are taken to be full.
        gathered: bool. Whether the last block computes queries and feed-forward at
            masked positions only, as ours does. The head always does.
    """
    tokens = size.batch_size * size.sequence_length
    masked = size.batch_size * size.masked
    return tokens * flops_per_token(
        size, size.sequence_length, masked / tokens, gathered
    )


def flops_per_token(size, seen, masked_share, gathered=True):
    """Operations of a step for each token.

    Args:
        size: `Size`.
        seen: float. How many tokens a token's attention is over, on average.
        masked_share: float. How many of the tokens are predicted.
        gathered: see `step_flops`.
    """
    width = size.hidden_dim
    keys_and_values = 4 * width**2
    others = 20 * width**2 + 4 * seen * width  # queries, output, 4 times wide, scores
    whole = size.num_layers - 1 if gathered else size.num_layers
    forward = whole * (keys_and_values + others)
    if gathered:
        forward += keys_and_values + masked_share * others
    forward += masked_share * 2 * width * (width + size.vocabulary_size)
    return 3 * forward


def step_bytes(size, chunk=None, replicas=1):
    """Memory of a step in float32: what has to be there at its peak.

    Weights, gradients and two moments; for each token and block what the gradient
    reads: inputs of the products, norms, the wide layer before and after its
    activation, scores before and after the softmax (Korthikanti et al., 2022,
    section 4, without dropout's masks); the logits and their gradient.

    Args:
        size: `Size`.
        chunk: int or `None`. How many masked positions have logits at a time.
        replicas: int. How many share the batch, each with weights of its own.
    """
    tokens = size.batch_size * size.sequence_length
    masked = size.batch_size * size.masked
    of_token = 16 * size.hidden_dim + 2 * size.num_heads * size.sequence_length
    logits = 2 * min(masked, chunk or masked) * size.vocabulary_size
    activations = tokens * size.num_layers * of_token
    return 16 * replicas * parameters(size) + 4 * (activations + logits)


def replica_seconds(seconds, replicas, cores):
    """The time of a step whose batch is shared by processes of one core each.

    Args:
        seconds: float, that of one process.
        replicas: int.
        cores: int, those of the machine.
    """
    return seconds / min(replicas, cores)
