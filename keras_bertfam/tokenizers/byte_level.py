"""Byte-level BPE in the graph: split texts into words, and words into tokens by merges.

KerasHub's byte-pair tokenizers mark places in a text by characters that texts can
contain. So they delete the Devanagari digit six, and take `Ĵ` before a capital for a
special token. Here places are numbers.

The published expression (Radford et al., 2019) ends with `\\s+(?!\\S)|\\s+`: of the
white space before a word, all characters except the last are a separate token.
TensorFlow's RE2 can't look ahead. So the last character is first moved to the word.
`"a  b\\n\\nc"` is split in three steps:

    split at white space     "a"  "  "  "b"  "\\n\\n"  "c"
    move the last character  "a"  " "  " b"  "\\n"  "\\nc"
    split into words         "a"  " "  " b"  "\\n"  "\\n"  "c"
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import keras
import keras_hub
import tensorflow as tf
import tensorflow_text as tf_text
from tokenizers import pre_tokenizers

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.tokenizers.added_tokens import AddedToken, split_at
from keras_bertfam.tokenizers.merging import (
    are_in_order,
    as_given,
    check_ids,
    merged_words,
    once_traced,
)
from keras_bertfam.tokenizers.steps import (
    LLAMA_SPLIT,
    NORMALIZERS,
    PRE_TOKENIZERS,
    Step,
    check_steps,
    normalize,
    split_by,
    words_after_spaces,
)
from keras_bertfam.tokenizers.text_tokenizer import (
    TextTokenizer,
    rows_between,
)
from keras_bertfam.tokenizers.texts import WHITE_SPACE, to_utf8, without_nul
from keras_bertfam.types import Config, Path, TFRagged, TFTensor, Tokenizer

_SPACES = f"[{WHITE_SPACE}]+"
_WORDS = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|"
    rf" ?[^{WHITE_SPACE}\p{{L}}\p{{N}}]+|{_SPACES}"
)


@as_written
def words_of(texts: TFTensor) -> TFRagged:
    """Split texts into words, each of which is merged separately. Works in a graph.

    Args:
        texts: string tensor of shape `(batch,)`, in UTF-8.

    Returns:
        Ragged string tensor of shape `(batch, None)`. The words joined are the text.
    """
    return words_after_spaces(texts, _SPACES, _SPACES, _WORDS)


# The characters that stand for bytes in tokens, such as "Ġ" for a space.
_SIGNS = frozenset(pre_tokenizers.ByteLevel.alphabet())


def _in_signs(token):
    """Write the bytes of a token in their signs."""
    step = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return "".join(part for part, _ in step.pre_tokenize_str(token))


class ByteLevelTokenizer(TextTokenizer, keras_hub.tokenizers.BytePairTokenizer):
    """Byte-level BPE that splits texts as published.

    Args:
        vocabulary: path of a `vocab.json`, or a dict from tokens to ids.
        merges: path of a `merges.txt`, or a list of its lines.
        normalizer: list of dicts, steps of a `tokenizer.json` that are done to texts
            first, such as `{"type": "NFKC"}`.
        pre_tokenizer: list of dicts, steps that split texts before the published
            expression does, such as `{"type": "Digits", "individual_digits": True}`;
            `None` for the class's own steps, mostly none.
        ignore_merges: bool. Whether a word that is a token stays whole, whatever the
            merges are; `None` for the class's own setting, mostly `False`.
        **kwargs: arguments of `TextTokenizer` and
            `keras_hub.tokenizers.BytePairTokenizer`.
    """

    word_gap = ""
    special_token_names: ClassVar[dict[str, str]] = {}
    default_pre_tokenizer: ClassVar[tuple[Step, ...]] = ()
    default_ignore_merges: ClassVar[bool] = False

    def __init__(
        self,
        vocabulary: Path | dict[str, int] | None = None,
        merges: Path | list[str] | None = None,
        normalizer: Iterable[Step] = (),
        pre_tokenizer: Iterable[Step] | None = None,
        ignore_merges: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if pre_tokenizer is None:
            pre_tokenizer = self.default_pre_tokenizer
        else:
            pre_tokenizer = [*pre_tokenizer]
            self._read_prefix_space(pre_tokenizer, kwargs)
        if ignore_merges is None:
            ignore_merges = self.default_ignore_merges
        if not isinstance(ignore_merges, bool):
            raise ValueError(
                f"`ignore_merges` must be a bool. Received: {ignore_merges!r}."
            )
        self.normalizer = check_steps(normalizer, NORMALIZERS, "normalizer")
        self.pre_tokenizer = check_steps(pre_tokenizer, PRE_TOKENIZERS, "pre_tokenizer")
        self.ignore_merges = ignore_merges
        for name, token in self.special_token_names.items():
            self._add_special_token(token, f"{name}_token")
        # KerasHub's other path, in pure Python, splits words differently.
        kwargs["_allow_python_workflow"] = False
        super().__init__(vocabulary=vocabulary, merges=merges, **kwargs)

    def _read_prefix_space(self, steps, kwargs):
        """Take `add_prefix_space` from a step of a file, unless it's an argument."""
        said = [s["add_prefix_space"] for s in steps if "add_prefix_space" in s]
        if said:
            kwargs.setdefault("add_prefix_space", said[0])

    def set_vocabulary_and_merges(self, vocabulary: Any, merges: Any) -> None:
        super().set_vocabulary_and_merges(*as_given(vocabulary, merges))
        check_ids(self.vocabulary)
        self._spell_tokens()
        self.merges_in_order = self.vocabulary is not None and are_in_order(self.merges)
        self.merge = once_traced(self, self._merge)

    def clean_texts(self, texts: TFTensor) -> TFTensor:
        return normalize(texts, self.normalizer) if self.normalizer else texts

    def _spell_tokens(self):
        """Let `detokenize` give tokens that aren't in byte signs as they are written.

        Such are runs of spaces. KerasHub's would leave out characters that are no sign.
        """
        tokens = self.vocabulary or {}
        spelt = [t if _SIGNS.issuperset(t) else _in_signs(t) for t in tokens]
        if spelt == [*tokens]:
            return
        with tf.init_scope(), tf.device("CPU:0"):
            ids = tf.constant([*tokens.values()], tf.int32)
            table = tf.lookup.KeyValueTensorInitializer(ids, tf.constant(spelt))
            self.id_to_token_map = tf.lookup.StaticHashTable(table, "")

    def normalizer_steps(self) -> list[Step]:
        """List the steps that clean texts, as in a `tokenizer.json`."""
        return [dict(step) for step in self.normalizer]

    def pre_tokenizer_steps(self) -> list[Step]:
        """List the steps that split texts, as in a `tokenizer.json`."""
        flags = {"add_prefix_space": self.add_prefix_space, "trim_offsets": True}
        steps = [dict(step) for step in self.pre_tokenizer]
        if not steps or steps[-1]["type"] != "ByteLevel":
            steps.append({"type": "ByteLevel"})
        return [*steps[:-1], {"use_regex": True, **steps[-1], **flags}]

    def _merge(self, texts: TFTensor) -> TFRagged:
        steps = (s for s in self.pre_tokenizer if s["type"] == "ByteLevel")
        by_words = all(step.get("use_regex", True) for step in steps)
        return byte_level_rows(self, texts, by_words)

    def _rows(self, texts: TFTensor) -> TFRagged:
        pieces, _ = split_by(self.clean_texts(texts), self.pre_tokenizer)
        rows = self.merge(pieces.flat_values)
        return ragged.merge_inner(pieces.with_flat_values(rows))

    def get_config(self) -> Config:
        config = super().get_config()
        if self.normalizer:
            config["normalizer"] = [dict(step) for step in self.normalizer]
        if self.pre_tokenizer != self.default_pre_tokenizer:
            config["pre_tokenizer"] = [dict(step) for step in self.pre_tokenizer]
        if self.ignore_merges != self.default_ignore_merges:
            config["ignore_merges"] = self.ignore_merges
        return config


@as_written
def byte_level_rows(
    tokenizer: Tokenizer, texts: TFTensor, by_words: bool = True
) -> TFRagged:
    """Tokenize as the published byte-level BPE does. Works in a graph.

    A zero byte becomes a space, since TensorFlow's RE2 takes it for a text's end.

    Args:
        tokenizer: a `keras_hub.tokenizers.BytePairTokenizer`.
        texts: strings of shape `(batch,)`, in UTF-8.
        by_words: bool. Whether to merge within words only. If false, tokens can span
            words.

    Returns:
        Ragged tensor of shape `(batch, None)`: ids, or strings if that is the
        tokenizer's dtype.
    """
    texts = without_nul(texts)
    if tokenizer.add_prefix_space:
        bare = tf.strings.regex_full_match(texts, r"[^ ](?s:.*)")
        texts = tf.where(bare, tf.strings.join([" ", texts]), texts)
    words = words_of(texts)
    if not by_words:
        words = ragged.from_lengths(
            ragged.keep(texts, texts != ""), tf.cast(texts != "", tf.int64)
        )

    def letters_of(words):
        letters = tokenizer.byte2unicode.lookup(tf.strings.bytes_split(words))
        if getattr(tokenizer, "ignore_merges", False):
            return _whole_where_known(tokenizer, letters)
        return letters

    tokens = ragged.merge_inner(merged_words(tokenizer, words, letters_of))
    if tokenizer.compute_dtype == "string":
        return tokens
    ids = tokens.with_flat_values(tokenizer.token_to_id_map.lookup(tokens.flat_values))
    # A byte that the vocabulary lacks becomes the unknown token. Without such a token
    # it is left out.
    names = (name for name in ("<unk>", "[UNK]") if name in tokenizer.vocabulary)
    unknown = next(names, None)
    if unknown is None:
        return ragged.keep_in_rows(ids, ids.flat_values >= 0)
    number = tokenizer.vocabulary[unknown]
    return ids.with_flat_values(tf.where(ids.flat_values < 0, number, ids.flat_values))


@as_written
def _whole_where_known(tokenizer, letters):
    """Put words that are tokens in the place of their letters."""
    words = tf.strings.reduce_join(letters, -1)
    whole = tokenizer.token_to_id_map.lookup(words) >= 0
    others = ~tf.gather(whole, ragged.row_ids(letters))
    letters = ragged.keep_in_rows(letters, others)
    return ragged.fill_rows(letters, whole, ragged.keep(words, whole))


@keras.saving.register_keras_serializable("keras_bertfam")
class RobertaTokenizer(ByteLevelTokenizer, keras_hub.tokenizers.RobertaTokenizer):
    """RoBERTa's tokenizer, byte-level BPE, with the ids of the original.

    `<mask>` includes the space before it. `keras_hub.tokenizers.RobertaTokenizer` gives
    other ids for some texts: it deletes the Devanagari digit six, and reads `ĴB` as
    `<mask>`.

    Args:
        vocabulary: path of a `vocab.json`, or a dict from tokens to ids.
        merges: path of a `merges.txt`, or a list of its lines.
        **kwargs: `added_tokens` (list of `AddedToken` or str, tokens that are found in
            texts before these are split), `add_prefix_space` (bool, whether to put a
            space before each text), `normalizer` and `pre_tokenizer` (lists of dicts,
            steps of a `tokenizer.json` that are done to texts first), and the other
            arguments of `keras_hub.tokenizers.BytePairTokenizer`.

    Returns:
        Called on strings of shape `(batch,)`, a `tf.RaggedTensor` of shape
        `(batch, None)`, also in eager mode. Called on a single string, a tensor of
        shape `(None,)`.

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
    """BART's tokenizer: RoBERTa's byte-level BPE, with a mask token.

    `keras_hub.tokenizers.BartTokenizer` lacks `<mask>`, which BART's noise needs.

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

    Texts are normalised to Unicode's form NFC, as in `transformers`. The vocabulary has
    tokens for runs of two, three, ... spaces; such a run becomes its token.

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


@keras.saving.register_keras_serializable("keras_bertfam")
class EuroBertTokenizer(ByteLevelTokenizer):
    """EuroBERT's tokenizer: Llama 3's byte-level BPE, with a mask token.

    Texts are split as `tiktoken` does for Llama 3: digits by three, a sign with the
    letters that follow it, line ends by themselves. A word that is a token stays
    whole, whatever the merges are. Rows are padded with the token that ends them.

    Args:
        vocabulary: path of a `vocab.json`, or a dict from tokens to ids, with
            `<|begin_of_text|>`, `<|end_of_text|>` and `<|mask|>`.
        merges: path of a `merges.txt`, or a list of its lines.
        **kwargs: see `RobertaTokenizer`; and `ignore_merges` (bool: whether words that
            are tokens stay whole).

    Returns:
        See `RobertaTokenizer`.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(
        documents, 300, family="eurobert")
    ```

    Reference: [Boizard et al., 2025](https://arxiv.org/abs/2503.05500).
    """

    special_token_names = {
        "start": "<|begin_of_text|>",
        "end": "<|end_of_text|>",
        "pad": "<|end_of_text|>",
        "mask": "<|mask|>",
    }
    default_pre_tokenizer = (
        LLAMA_SPLIT,
        {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        },
    )
    default_ignore_merges = True
