"""How probable masked language models find whole texts."""

from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_bertfam.types import Model


def pseudo_log_likelihood(
    task: Model, texts: Sequence[str], batch_size: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability of every token given all others of its text.

    Each token is masked in turn, so a text of `n` tokens takes `n` rows. The sum
    ranks texts, as in pairs of an acceptable and an unacceptable sentence; the
    exponential of minus its mean over tokens is the pseudo-perplexity.

    Args:
        task: a task with `fill_mask`, such as `keras_bertfam.tasks.MaskedLM`, and
            a preprocessor.
        texts: list of str, cut at the preprocessor's `sequence_length`.
        batch_size: int. Rows at once.

    Returns:
        Two NumPy arrays of shape `(len(texts),)`: float64 sums of the natural
        logarithms, and int64 counts of tokens, special ones excluded.

    Raises:
        ValueError: if the task has no preprocessor.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    sums, counts = keras_bertfam.analysis.pseudo_log_likelihood(
        model, ["The cats sleep.", "The cats sleeps."])
    perplexity = np.exp(-sums.sum() / counts.sum())
    ```

    Reference: [Salazar et al., 2020](https://arxiv.org/abs/1910.14659), section 2.
    """
    if task.preprocessor is None:
        raise ValueError("`task` must have a preprocessor. Received one of None.")
    tokenizer = task.preprocessor.tokenizer
    inputs = task.preprocessor.encode(texts)
    inputs = {name: np.asarray(value) for name, value in inputs.items()}
    ids = inputs["token_ids"]
    special = [tokenizer.start_token_id, tokenizer.end_token_id]
    rows, positions = np.nonzero(inputs["padding_mask"] & ~np.isin(ids, special))
    sums = np.zeros(len(ids))
    for start in range(0, len(rows), batch_size):
        # One shape for all batches: the last one is filled up with its end.
        index = np.minimum(np.arange(start, start + batch_size), len(rows) - 1)
        batch = {name: value[rows[index]] for name, value in inputs.items()}
        each, place = np.arange(batch_size), positions[index]
        targets = batch["token_ids"][each, place]
        batch["token_ids"][each, place] = tokenizer.mask_token_id
        batch["mask_positions"] = place[:, None].astype("int32")
        logits = task.masked_lm_logits(batch)[:, 0]
        log_probabilities = ops.convert_to_numpy(ops.log_softmax(logits))
        real = min(batch_size, len(rows) - start)
        picked = log_probabilities[each, targets][:real]
        np.add.at(sums, rows[start : start + real], picked)
    return sums, np.bincount(rows, minlength=len(ids))
