"""WordPiece tokenisation in the graph, as in BERT and MPNet."""

import collections
import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import keras
import keras_hub
import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.presets.checkpoints.reading import vocabulary_lines
from keras_bertfam.tokenizers.steps import (
    NORMALIZERS,
    PRE_TOKENIZERS,
    Step,
    bert_step,
    check_steps,
    lowercases,
    normalize,
    normalizer_model,
    split_by,
)
from keras_bertfam.tokenizers.text_tokenizer import TextTokenizer
from keras_bertfam.tokenizers.texts import check_lines
from keras_bertfam.types import Config, Path, TFRagged, TFTensor

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Arguments of KerasHub's that can have one value here.
_FIXED = {"split_on_cjk": True, "suffix_indicator": "##", "oov_token": "[UNK]"}


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class BertTokenizer(TextTokenizer, keras_hub.tokenizers.BertTokenizer):
    """BERT's WordPiece tokenizer, with the ids of the original.

    It has the interface of `keras_hub.tokenizers.BertTokenizer`, which keeps accents
    when it lower-cases. It runs `tensorflow_text.FastBertTokenizer`, which is several
    times faster, after BERT's own clean-up of characters, see `clean_character`.
    KerasHub and `tensorflow_text` clean differently: both turn "…" into three full
    stops, and "ß" into "ss". With `split=False` the tokenizer works as KerasHub's.

    Letters are lower-cased one by one, as in `transformers`: "ΟΔΟΣ" ends with `σ`. In
    the first code of 2018 it ends with `ς`. A word becomes [UNK] if it has bytes that
    aren't UTF-8, or more than `max_input_chars_per_word` characters.

    Args:
        vocabulary: list of strings or the path of a file with a token per line; a tab
            and the token's number may follow, as in PaddlePaddle's files. It must
            contain [PAD], [UNK], [CLS], [SEP] and [MASK], and no token twice.
        lowercase: bool. Whether to lower-case and strip accents. Defaults to `False`.
        max_input_chars_per_word: int. Characters are counted after the clean-up.
            Defaults to `100`, as in `transformers`. Google's later code has 200, and
            so have tokenizers that are read from its checkpoints.
        normalizer: list of dicts, steps of a `tokenizer.json` that replace BERT's
            clean-up, such as `{"type": "NFKC"}`. The attribute `lowercase` then says
            whether they lower-case. Defaults to `None`: BERT's clean-up.
        pre_tokenizer: list of dicts, steps that replace BERT's splitting of words, such
            as `{"type": "WhitespaceSplit"}`. If only one of `normalizer` and
            `pre_tokenizer` is given, the other has no steps. Defaults to `None`: BERT's
            splitting.
        **kwargs: `sequence_length` (int, pad and truncate to it), `dtype`
            (`"int32"`, or `"string"` for tokens instead of ids), `added_tokens` (list
            of `AddedToken` or str, tokens that are found in texts before these are
            split), `special_tokens_in_strings` (bool, whether special tokens are found
            in the same way), and the other arguments of
            `keras_hub.tokenizers.WordPieceTokenizer`.

    Returns:
        Called on strings of shape `(batch,)`, a `tf.RaggedTensor` of shape
        `(batch, None)`, also in eager mode. Called on a single string, a tensor of
        shape `(None,)`.

    Raises:
        ValueError: If the vocabulary lacks a special token, or has a token twice; for
            another `strip_accents` than `lowercase`, or another `split_on_cjk`,
            `suffix_indicator` or `oov_token` than BERT's.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    tokenizer(["The quick brown fox."])
    ```

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805);
        [Song et al., 2020](https://arxiv.org/abs/2012.15524).
    """

    special_token_names: ClassVar[dict[str, str]] = {
        "cls": "[CLS]",
        "sep": "[SEP]",
        "pad": "[PAD]",
        "mask": "[MASK]",
        "start": "[CLS]",
        "end": "[SEP]",
    }
    # The tokens that a vocabulary must have.
    required_tokens: ClassVar[tuple[str, ...]] = SPECIAL_TOKENS
    _fast_bert: Any
    nul = "\x01"  # the clean-up removes it, as it would remove a zero byte

    def __init__(
        self,
        vocabulary: Path | Sequence[str] | None = None,
        lowercase: bool = False,
        max_input_chars_per_word: int = 100,
        normalizer: Iterable[Step] | None = None,
        pre_tokenizer: Iterable[Step] | None = None,
        **kwargs: Any,
    ) -> None:
        if not kwargs.get("split", True):
            given: Config = {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
            given["added_tokens"] = kwargs.get("added_tokens")
            for name, value in given.items():
                if value:
                    raise ValueError(
                        f"`{name}` must be left out with `split=False`, by which texts "
                        f"are words. Received: {value!r}."
                    )
        self.max_input_chars_per_word = max_input_chars_per_word
        self.normalizer = self.pre_tokenizer = None
        if normalizer is not None or pre_tokenizer is not None:
            self.normalizer = check_steps(normalizer or (), NORMALIZERS, "normalizer")
            self.pre_tokenizer = check_steps(
                pre_tokenizer or (), PRE_TOKENIZERS, "pre_tokenizer"
            )
            lowercase = lowercases(self.normalizer)
        # KerasHub's other path, in pure Python, keeps accents.
        kwargs["_allow_python_workflow"] = False
        for name, value in {**_FIXED, "strip_accents": lowercase}.items():
            if kwargs.setdefault(name, value) != value:
                raise ValueError(
                    f"`{name}` must be {value!r} or left out: `normalizer` and "
                    "`pre_tokenizer` change how texts are cleaned and split. "
                    f"Received: {name}={kwargs[name]!r}."
                )
        super().__init__(vocabulary=vocabulary, lowercase=lowercase, **kwargs)

    @classmethod
    def from_config(cls, config: Config) -> Any:
        # Earlier versions took these, and saved them, without any effect.
        unread = {*_FIXED, "strip_accents"}
        return super().from_config({k: v for k, v in config.items() if k not in unread})

    def _add_special_token(self, token: str, name: str) -> None:
        # KerasHub's constructor would give BERT's tokens.
        token = self.special_token_names[name.removesuffix("_token")]
        super()._add_special_token(token, name)

    def set_vocabulary(self, vocabulary: Path | Sequence[str] | None) -> None:
        self._fast_bert = None
        tokens: Any = None
        self.vocabulary = tokens
        error: Exception | None = None
        try:
            super().set_vocabulary(vocabulary)
        except (RuntimeError, ValueError) as caught:
            error = caught
        if isinstance(vocabulary, (str, os.PathLike)) and self.vocabulary is not None:
            # The file is read here, since KerasHub strips more than line ends.
            lines = vocabulary_lines(vocabulary)
            if lines != self.vocabulary:
                self.set_vocabulary(lines)
                return
        if error is not None:
            plain = _without_numbers(self.vocabulary)
            if plain is not None:
                self.set_vocabulary(plain)
                return
            self._check_required()
            if isinstance(error, ValueError):
                raise error
            counts: collections.Counter[str] = collections.Counter(self.vocabulary)
            ((token, count),) = counts.most_common(1)
            raise ValueError(
                "`vocabulary` must be valid for tensorflow_text, and have no token "
                f"twice. Received: {token!r} {count} times. {error}"
            ) from error
        if vocabulary is None:
            return
        check_lines(self.vocabulary)
        self._check_required()
        tokens = self.vocabulary
        # NumPy arrays: each graph makes its own constants from them.
        self._is_inner = np.array([t.startswith("##") for t in tokens])
        sizes = np.array([len(token) for token in tokens], "int32")
        self._characters = sizes - 2 * self._is_inner
        with tf.init_scope(), tf.device("CPU:0"):
            settings: dict[str, Any] = {
                "max_bytes_per_word": 4 * self.max_input_chars_per_word,
                "token_out_type": tf.int32,
                "support_detokenization": True,
            }
            if self.normalizer is not None:
                self._fast_bert = tf_text.FastWordpieceTokenizer(
                    self.vocabulary, no_pretokenization=True, **settings
                )
                return
            self._fast_bert = tf_text.FastBertTokenizer(
                self.vocabulary,
                **settings,
                fast_bert_normalizer_model_buffer=tf.constant(
                    normalizer_model(self.lowercase)
                ),
            )

    def _check_required(self):
        """Raise a `ValueError` for a vocabulary without a token that it must have."""
        known = {*(self.vocabulary or ())}
        if missing := [token for token in self.required_tokens if token not in known]:
            raise ValueError(
                f"`vocabulary` must contain {', '.join(self.required_tokens)}. "
                f"Missing: {', '.join(missing)}."
            )

    def tokenize(self, inputs: Any) -> Any:
        if self.split:
            return super().tokenize(inputs)
        self._check_vocabulary()
        return keras_hub.tokenizers.BertTokenizer.tokenize(self, inputs)

    def clean_texts(self, texts: TFTensor) -> TFTensor:
        """Clean strings as BERT, or the `normalizer`, does."""
        return normalize(texts, self.normalizer_steps())

    def normalizer_steps(self) -> list[Step]:
        """List the steps that clean texts, as in a `tokenizer.json`."""
        if self.normalizer is None:
            return [bert_step(self.lowercase)]
        return [dict(step) for step in self.normalizer]

    def pre_tokenizer_steps(self) -> list[Step]:
        """List the steps that split texts, as in a `tokenizer.json`."""
        steps = self.pre_tokenizer
        return [{"type": "BertPreTokenizer"}] if steps is None else [*map(dict, steps)]

    def _rows(self, texts: TFTensor) -> TFRagged:
        if self.pre_tokenizer is None:
            tokens = self._fast_bert.tokenize(texts)
        else:
            words, _ = split_by(self.clean_texts(texts), self.pre_tokenizer)
            pieces = self._fast_bert.tokenize(words.flat_values)
            tokens = ragged.merge_inner(words.with_flat_values(pieces))
        (tokens,) = self._without_long_words(tokens)
        if self.compute_dtype == "string":
            return tokens.with_flat_values(
                tf.gather(self.vocabulary, tokens.flat_values)
            )
        return tf.cast(tokens, self.compute_dtype)

    def tokenize_with_offsets(
        self, texts: TFTensor
    ) -> tuple[TFRagged, TFRagged, TFRagged]:
        """Tokenize texts, and tell for each token its bytes in the text.

        Args:
            texts: string tensor of shape `(batch,)`, in UTF-8.

        Returns:
            A tuple of ragged tensors of shape `(batch, None)`: ids, int32, and the
            bytes where tokens start and end, int64. With a `normalizer` the bytes are
            counted in the normalised texts.
        """
        if self.pre_tokenizer is None:
            tokens = self._fast_bert.tokenize_with_offsets(texts)
            return self._without_long_words(*tokens)
        words, first = split_by(self.clean_texts(texts), self.pre_tokenizer)
        tokens, *bounds = self._fast_bert.tokenize_with_offsets(words.flat_values)
        first = tf.gather(first.flat_values, ragged.row_ids(tokens))
        bounds = [x.with_flat_values(x.flat_values + first) for x in bounds]
        return self._without_long_words(
            *(ragged.merge_inner(words.with_flat_values(x)) for x in (tokens, *bounds))
        )

    def _without_long_words(self, tokens, *bounds):
        """Replace each word that is too long by one unknown token.

        Args:
            tokens: ragged tensor of ids.
            *bounds: two ragged tensors of where tokens start and end, or nothing.

        Returns:
            A tuple of the same tensors for the new tokens.
        """
        # Example: with words of at most 3 characters, "ab", "##cd", "e" become
        # "[UNK]", "e".
        ids = tokens.flat_values
        inner = tf.gather(self._is_inner, ids)
        # The least number of tokens after the first one of a word that is too long.
        least = self.max_input_chars_per_word // self._characters.max()
        so_far = tf.cumsum(tf.cast(inner, tf.int32))
        in_a_row = so_far[least:] - so_far[: tf.maximum(tf.size(ids) - least, 0)]

        def shorten():
            word = tf.cumsum(tf.cast(~inner, tf.int32)) - 1
            sizes = tf.math.segment_sum(tf.gather(self._characters, ids), word)
            long = tf.gather(sizes > self.max_input_chars_per_word, word)
            values = [tf.where(long, self._token_to_id_map["[UNK]"], ids)]
            for starts, ends in [bounds] if bounds else []:
                last = tf.gather(tf.math.segment_max(ends.flat_values, word), word)
                ends = tf.where(long, last, ends.flat_values)
                values += [starts.flat_values, ends]
            kept = ~(long & inner)
            return tuple(
                ragged.keep_in_rows(tokens.with_flat_values(x), kept) for x in values
            )

        given = (tokens, *bounds)
        return tf.cond(tf.reduce_any(in_a_row == least), shorten, lambda: given)

    def get_config(self) -> Config:
        config = super().get_config()
        config["max_input_chars_per_word"] = self.max_input_chars_per_word
        for name in ("normalizer", "pre_tokenizer"):
            if getattr(self, name) is not None:
                config[name] = [dict(step) for step in getattr(self, name)]
        return config


# The first tokens of MPNet's vocabularies, before BERT's; `<mask>` is the last.
MPNET_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class MPNetTokenizer(BertTokenizer):
    """MPNet's tokenizer: BERT's word pieces between the special tokens of fairseq.

    The published vocabulary is `<s>`, `<pad>`, `</s>`, `<unk>`, then the vocabulary of
    `bert_base_en_uncased`, whose ids grow by 4, then `<mask>`. An unknown word becomes
    BERT's `[UNK]`. BERT's other special tokens don't occur in any text.

    Args:
        vocabulary: list of strings or the path of a file with a token per line. It
            must contain `<s>`, `<pad>`, `</s>`, `<unk>`, `[UNK]` and `<mask>`, and no
            token twice.
        lowercase: bool. Whether to lower-case and strip accents, as the published
            tokenizer does. Defaults to `False`.
        **kwargs: other arguments of `BertTokenizer`.

    Returns:
        See `BertTokenizer`.

    Example:

    ```python
    bert = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *bert.get_vocabulary(), "<mask>"]
    tokenizer = keras_bertfam.tokenizers.MPNetTokenizer(tokens, lowercase=True)
    ```

    Reference: [Song et al., 2020](https://arxiv.org/abs/2004.09297); released code.
    """

    special_token_names: ClassVar[dict[str, str]] = {
        "cls": "<s>",
        "sep": "</s>",
        "pad": "<pad>",
        "mask": "<mask>",
        "start": "<s>",
        "end": "</s>",
    }
    required_tokens: ClassVar[tuple[str, ...]] = (*MPNET_TOKENS, "[UNK]", "<mask>")


def _without_numbers(lines):
    """Read tokens from lines of a token and its number; `None` for other lines."""
    if not lines or "\t" not in lines[0]:
        return None
    tokens = []
    for number, line in enumerate(lines):
        token, _, said = line.rpartition("\t")
        if said != str(number):
            raise ValueError(
                "`vocabulary` must have the number of each line, from 0, after its "
                f"token, or no numbers. Received: {line!r} in line {number + 1}."
            )
        tokens.append(token)
    return tokens
