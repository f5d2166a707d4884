"""BART's tokenizer."""

from typing import Any

import keras
import keras_hub

from keras_bertfam.presets.tokenizer_presets import PresetTokenizer
from keras_bertfam.tokenizers.byte_level import tokenize_byte_level
from keras_bertfam.types import Path


@keras.saving.register_keras_serializable("keras_bertfam")
class BartTokenizer(PresetTokenizer, keras_hub.tokenizers.BartTokenizer):
    """BART's tokenizer, byte-level BPE as RoBERTa's, with its mask token.

    `keras_hub.tokenizers.BartTokenizer` doesn't know `<mask>`, which BART's noise is
    made of.

    Args:
        vocabulary: path of a `vocab.json`, or a dict from tokens to ids.
        merges: path of a `merges.txt`, or a list of its lines.
        **kwargs: arguments of `keras_hub.tokenizers.BytePairTokenizer`.

    Returns:
        Called on strings of shape `(batch,)`: a `tf.RaggedTensor` of shape
        `(batch, None)` in a graph and lists in eager mode; on a single string,
        a tensor of shape `(None,)`.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        documents, 300, family="bart")
    ```

    Reference: [Lewis et al., 2019](https://arxiv.org/abs/1910.13461).
    """

    def __init__(
        self,
        vocabulary: Path | dict[str, int] | None = None,
        merges: Path | list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self._add_special_token("<mask>", "mask_token")
        # KerasHub's second, pure Python, path splits words otherwise.
        kwargs["_allow_python_workflow"] = False
        super().__init__(vocabulary=vocabulary, merges=merges, **kwargs)

    def _tokenize_tf(self, inputs: Any) -> Any:
        return tokenize_byte_level(self, inputs)
