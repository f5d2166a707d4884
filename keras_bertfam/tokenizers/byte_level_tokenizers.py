"""The tokenizers of byte-level BPE: RoBERTa's, BART's, GPT-2's and ModernBERT's."""

from typing import Any

import keras
import keras_hub
import tensorflow_text as tf_text

from keras_bertfam.tokenizers.added_tokens import AddedToken, split_at
from keras_bertfam.tokenizers.byte_level import ByteLevelTokenizer
from keras_bertfam.tokenizers.steps import Step
from keras_bertfam.tokenizers.text_tokenizer import rows_between
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import TFTensor


@keras.saving.register_keras_serializable("keras_bertfam")
class RobertaTokenizer(ByteLevelTokenizer, keras_hub.tokenizers.RobertaTokenizer):
    """RoBERTa's tokenizer, byte-level BPE, with the ids of the original.

    `keras_hub.tokenizers.RobertaTokenizer` deletes the Devanagari digit six, and reads
    `ĴB` as `<mask>`. `<mask>` takes the space before it.

    Args:
        vocabulary: path of a `vocab.json`, or a dict from tokens to ids.
        merges: path of a `merges.txt`, or a list of its lines.
        **kwargs: `added_tokens` (list of `AddedToken` or str: what is found in texts
            before they are split), `add_prefix_space` (bool: a text begins as after a
            space), `normalizer` and `pre_tokenizer` (lists of dicts, steps of a
            `tokenizer.json` that are done to texts before), and the other arguments of
            `keras_hub.tokenizers.BytePairTokenizer`.

    Returns:
        Called on strings of shape `(batch,)`: a `tf.RaggedTensor` of shape
        `(batch, None)`, in eager mode, too; on a single string, a tensor of shape
        `(None,)`.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(documents, 300)
    ```

    References: [Liu et al., 2019](https://arxiv.org/abs/1907.11692);
    [Radford et al., 2019](
    https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf),
    section 2.2.
    """


@keras.saving.register_keras_serializable("keras_bertfam")
class BartTokenizer(ByteLevelTokenizer, keras_hub.tokenizers.BartTokenizer):
    """BART's tokenizer, byte-level BPE as RoBERTa's, with its mask token.

    `keras_hub.tokenizers.BartTokenizer` doesn't know `<mask>`, which BART's noise is
    made of.

    Args:
        vocabulary: path of a `vocab.json`, or a dict from tokens to ids.
        merges: path of a `merges.txt`, or a list of its lines.
        **kwargs: see `RobertaTokenizer`.

    Returns:
        See `RobertaTokenizer`.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        documents, 300, family="bart")
    ```

    Reference: [Lewis et al., 2019](https://arxiv.org/abs/1910.13461).
    """

    special_token_names = {"mask": "<mask>"}


@keras.saving.register_keras_serializable("keras_bertfam")
class GPT2Tokenizer(ByteLevelTokenizer, keras_hub.tokenizers.GPT2Tokenizer):
    """GPT-2's tokenizer, byte-level BPE, with the ids of the original.

    Args:
        vocabulary: path of a `vocab.json`, or a dict from tokens to ids.
        merges: path of a `merges.txt`, or a list of its lines.
        **kwargs: see `RobertaTokenizer`.

    Returns:
        See `RobertaTokenizer`.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        documents, 300, family="gpt2")
    ```

    Reference: [Radford et al., 2019](
    https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf),
    section 2.2.
    """


@keras.saving.register_keras_serializable("keras_bertfam")
class ModernBertTokenizer(ByteLevelTokenizer):
    """ModernBERT's tokenizer: byte-level BPE with BERT's special tokens.

    Texts are in Unicode's form NFC, as `transformers` has them. Runs of spaces for
    which the vocabulary has a token, from two on without a gap, are that token.

    Args:
        vocabulary: path of a `vocab.json`, or a dict from tokens to ids, with
            `[CLS]`, `[SEP]`, `[PAD]` and `[MASK]`.
        merges: path of a `merges.txt`, or a list of its lines.
        **kwargs: see `RobertaTokenizer`.

    Returns:
        See `RobertaTokenizer`.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        documents, 300, family="modernbert")
    ```

    Reference: [Warner et al., 2024](https://arxiv.org/abs/2412.13663), section 2.1.3.
    """

    special_token_names = {
        "start": "[CLS]",
        "end": "[SEP]",
        "pad": "[PAD]",
        "mask": "[MASK]",
    }
    finds_runs_of_spaces = True

    def clean_texts(self, texts: TFTensor) -> TFTensor:
        return tf_text.normalize_utf8(super().clean_texts(to_utf8(texts)), "NFC")

    def normalizer_steps(self) -> list[Step]:
        return [*super().normalizer_steps(), {"type": "NFC"}]

    def _merge(self, texts: TFTensor) -> Any:
        runs: list[str] = []
        while (run := " " * (2 + len(runs))) in self.vocabulary:
            runs.append(run)
        if not runs:
            return super()._merge(texts)
        parts = split_at(texts, [AddedToken(run) for run in runs])
        return rows_between(self, parts, runs, super()._merge)
