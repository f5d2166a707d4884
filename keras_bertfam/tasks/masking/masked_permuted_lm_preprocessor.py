"""Turn raw text into rows whose masked tokens are predicted in a random order."""

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.rows.rows import PackedRows
from keras_bertfam.tasks.masking.masking_preprocessor import MaskingPreprocessor
from keras_bertfam.types import TFTensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedPermutedLMPreprocessor(MaskingPreprocessor):
    """Makes examples of masked and permuted language modelling from text.

    It masks like `MaskedLMPreprocessor`, with any strategy. But it returns the original
    row, and beside it the selected positions in random order, with the token that takes
    the place of each.

    Args:
        tokenizer: a tokenizer layer with a mask token, such as
            `keras_bertfam.tokenizers.MPNetTokenizer`.
        sequence_length: int. Tokens in a row, special ones included. Defaults
            to `128`.
        **kwargs: other arguments of `MaskedLMPreprocessor`.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`.
        seed: integer tensor of shape `(2,)` or `None`: the seed of masks and orders.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids`, int32 `(batch, length)`,
        without masks, `padding_mask`, bool, `mask_positions`, int32 `(batch, slots)`,
        in the order in which they are predicted, `masked_ids`, int32 of that shape:
        the mask, another token or the token itself, and `mask_weights`, float32; the
        original ids, int32 `(batch, slots)`; and float32 weights, 1 for a selection
        and 0 for an empty slot.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedPermutedLMPreprocessor(
        tokenizer, sequence_length=128, strategy="words"
    )
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    Reference: [Song et al., 2020](https://arxiv.org/abs/2004.09297), section 3.
    """

    shuffle_slots = True

    def make_rows(self) -> PackedRows:
        return self.packed_rows("full")

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], TFTensor, TFTensor]:
        ids, positions = corrupted["token_ids"], corrupted["mask_positions"]
        weights = corrupted["mask_weights"]
        x = {
            **self.masked_inputs(rows, corrupted),
            "token_ids": rows["token_ids"],
            "masked_ids": tf.gather(ids, positions, batch_dims=ids.shape.rank - 1),
            "mask_weights": weights,
        }
        return x, corrupted["mask_ids"], weights
