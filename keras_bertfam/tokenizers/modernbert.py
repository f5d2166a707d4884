"""ModernBERT's tokenizer."""

from typing import Any

import keras
import keras_hub
import tensorflow as tf
import tensorflow_text as tf_text

from keras_bertfam.presets.tokenizer_presets import PresetTokenizer
from keras_bertfam.tokenizers.byte_level import tokenize_byte_level
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Path


@keras.saving.register_keras_serializable("keras_bertfam")
class ModernBertTokenizer(PresetTokenizer, keras_hub.tokenizers.BytePairTokenizer):
    """ModernBERT's tokenizer: byte-level BPE with BERT's special tokens.

    Texts are in Unicode's form NFC, as `transformers` has them. Runs of spaces for
    which the vocabulary has a token, from two on without a gap, are that token.

    Args:
        vocabulary: path of a `vocab.json`, or a dict from tokens to ids, with
            `[CLS]`, `[SEP]`, `[PAD]` and `[MASK]`.
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
        documents, 300, family="modernbert")
    ```

    Reference: [Warner et al., 2024](https://arxiv.org/abs/2412.13663), section 2.1.3.
    """

    def __init__(
        self,
        vocabulary: Path | dict[str, int] | None = None,
        merges: Path | list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        for name in ("cls", "sep", "pad", "mask"):
            role = {"cls": "start", "sep": "end"}.get(name, name)
            self._add_special_token(f"[{name.upper()}]", f"{role}_token")
        # KerasHub's second, pure Python, path splits words otherwise.
        kwargs["_allow_python_workflow"] = False
        super().__init__(vocabulary=vocabulary, merges=merges, **kwargs)

    def _tokenize_tf(self, inputs: Any) -> Any:
        with tf.device("CPU:0"):
            texts = tf_text.normalize_utf8(to_utf8(tf.convert_to_tensor(inputs)), "NFC")
            longest = self._longest_run()
            runs = f" {{2,{longest}}}" if longest > 1 else ""
            return tokenize_byte_level(self, texts, runs)

    def _longest_run(self):
        """The spaces of the longest run that is a token, without a gap from two on."""
        longest = 1
        while " " * (longest + 1) in self.vocabulary:
            longest += 1
        return longest
