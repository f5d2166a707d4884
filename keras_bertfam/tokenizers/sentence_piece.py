"""SentencePiece tokenisation in the graph, as in ALBERT and XLNet."""

import functools
import hashlib
import sys
import unicodedata
from collections.abc import Callable
from typing import Any, ClassVar

import keras
import keras_hub
import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text

from keras_bertfam.presets.tokenizer_formats.charsmap import Step, replace
from keras_bertfam.tokenizers.text_tokenizer import TextTokenizer
from keras_bertfam.tokenizers.texts import to_utf8, without_nul
from keras_bertfam.types import Config, Path, TFRagged, TFTensor


def comma_splits(
    pieces: list[str], encode: Callable[[str], list[str]]
) -> dict[int, list[str]]:
    """Split the pieces of a vocabulary that are a number and a comma.

    Args:
        pieces: list of str, the vocabulary of a SentencePiece model.
        encode: function from a str to the list of its pieces.

    Returns:
        Dict from the numbers of such pieces to lists of str: the pieces of the text
        without the comma, and then the comma.
    """
    splits = {}
    for number, piece in enumerate(pieces):
        if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
            continue
        parts = encode(piece[:-1].replace("▁", ""))
        if piece[0] != "▁" and parts[0].startswith("▁"):  # within a word
            parts = [parts[0][1:], *parts[1:]]
        splits[number] = [*filter(None, parts), ","]
    return splits


class NumberCommas(tf.Module):
    """A SentencePiece model of `tf_text` that splits off the comma after a number.

    Args:
        model: `tf_text.SentencepieceTokenizer`.
        size: int. Number of pieces of its vocabulary.
        splits: what `comma_splits` returns, not empty.
        to_token: function from a piece to an id or, if the model gives strings,
            to a str.
    """

    def __init__(
        self,
        model: Any,
        size: int,
        splits: dict[int, list[str]],
        to_token: Callable[[str], int | str],
    ) -> None:
        super().__init__()
        self.model, self.splits = model, tuple(splits)
        counts, starts = [1] * size, [0] * size
        tokens: list[int | str] = []
        after: list[int] = []
        for number, parts in splits.items():
            counts[number], starts[number] = len(parts), len(tokens)
            tokens += map(to_token, parts)
            sizes = [len(part.replace("▁", "").encode()) for part in parts]
            after += [sum(sizes[k + 1 :]) for k in range(len(sizes))]
        # NumPy arrays, of which each graph makes constants of its own.
        self._counts, self._starts, self._after = (
            np.array(values, "int32") for values in (counts, starts, after)
        )
        self._tokens = np.array(
            tokens, object if isinstance(tokens[0], str) else "int32"
        )

    def _split(self, tokens):
        """Split tokens, a ragged tensor.

        Returns:
            A tuple of the new tokens, and of three tensors with an element for each of
            them: the number of the old token, the place in the old token, and how many
            bytes of the old token follow.
        """
        # Example: "▁in", "▁2019,", "▁a" become "▁in", "▁2019", ",", "▁a". They come
        # from the tokens 0, 1, 1, 2, have the places 0, 0, 1, 0 in these, and 0, 1, 0,
        # 0 bytes follow.
        numbers = old = tokens.flat_values
        if old.dtype == tf.string:
            numbers = self.model.string_to_id(old)
        counts = tf.gather(self._counts, numbers)
        source = tf.repeat(tf.range(tf.size(counts)), counts)
        place = tf.range(tf.size(source)) - tf.gather(
            tf.cumsum(counts, exclusive=True), source
        )
        split = tf.gather(counts, source) > 1
        starts = tf.gather(self._starts, numbers)
        index = tf.where(split, tf.gather(starts, source) + place, 0)
        flat = tf.where(split, tf.gather(self._tokens, index), tf.gather(old, source))
        ends = tf.pad(tf.cumsum(counts), [[1, 0]])
        splits = tf.cast(tf.gather(ends, tokens.row_splits), tokens.row_splits.dtype)
        new = tf.RaggedTensor.from_row_splits(flat, splits, validate=False)
        after = tf.where(split, tf.gather(self._after, index), 0)
        return new, source, place, after

    def tokenize(self, texts: TFTensor) -> TFRagged:
        """Tokenize as the model does, texts of shape `(batch,)`."""
        return self._split(self.model.tokenize(texts))[0]

    def tokenize_with_offsets(
        self, texts: TFTensor
    ) -> tuple[TFRagged, TFRagged, TFRagged]:
        """Tokenize as the model does, texts of shape `(batch,)`, with offsets."""
        tokens, starts, ends = self.model.tokenize_with_offsets(texts)
        tokens, source, place, after = self._split(tokens)
        ends = tf.gather(ends.flat_values, source) - tf.cast(after, ends.dtype)
        first = tf.gather(starts.flat_values, source)
        before = tf.concat([first[:1], ends[:-1]], axis=0)
        starts = tf.where(place == 0, first, before)
        return tokens, tokens.with_flat_values(starts), tokens.with_flat_values(ends)

    def detokenize(self, tokens: TFTensor) -> TFTensor:
        """Read tokens as the model does."""
        return self.model.detokenize(tokens)


# White space in Python's sense, at which the original code splits, and which
# SentencePiece's own normalisation doesn't know. And NUL, which tensorflow_text takes
# for a text's end.
# At a word's end the small letter of sigma is another one.
_LAST_SIGMA = r"\p{Cased}\p{Case_Ignorable}*\KΣ(?!\p{Case_Ignorable}*\p{Cased})"
_SPACES = r"[\x00\x0b\x0c\x1c-\x1f\x{85}\x{2028}\x{2029}]"


@functools.cache
def combining_marks() -> str:
    """List the characters with a combining class, as a class of RE2.

    The original code strips them. Some nonspacing marks have no combining class, such
    as vowel signs of Indic scripts; they stay.
    """
    marks = [k for k in range(sys.maxunicode + 1) if unicodedata.combining(chr(k))]
    begins = [k for k in marks if not unicodedata.combining(chr(k - 1))]
    ends = [k for k in marks if not unicodedata.combining(chr(k + 1))]
    ranges = [rf"\x{{{a:x}}}-\x{{{b:x}}}" for a, b in zip(begins, ends, strict=True)]
    return f"[{''.join(ranges)}]"


class NormalizedSentencePiece(
    TextTokenizer, keras_hub.tokenizers.SentencePieceTokenizer
):
    """A SentencePiece model, and the clean-up of texts with which it was trained.

    Args:
        proto: path of a `spiece.model`, or its content as bytes.
        lowercase: bool.
        keep_accents: bool.
        split_number_commas: bool.
        **kwargs: arguments of `keras_hub.tokenizers.SentencePieceTokenizer`.
    """

    special_token_names: ClassVar[dict[str, str]] = {}
    pieces_added: ClassVar[int] = 0  # pieces that the class adds to a trained model
    _sentence_piece: Any

    def __init__(
        self,
        proto: Path | bytes | None = None,
        lowercase: bool = False,
        keep_accents: bool = False,
        split_number_commas: bool = True,
        **kwargs: Any,
    ) -> None:
        for name, token in self.special_token_names.items():
            self._add_special_token(token, f"{name}_token")
        self.lowercase = lowercase
        self.keep_accents = keep_accents
        self.split_number_commas = split_number_commas
        # KerasHub's other path, in pure Python, would skip the clean-up.
        kwargs["_allow_python_workflow"] = False
        super().__init__(proto=proto, **kwargs)

    def set_proto(self, proto: Path | bytes | None) -> None:
        super().set_proto(proto)
        if not self.split_number_commas or self.proto is None:
            return
        spm, pieces = self._sentence_piece_spm, self.model_vocabulary()
        splits = comma_splits(pieces, lambda text: spm.Encode(text, out_type=str))
        if splits:
            to_token = str if self.compute_dtype == "string" else self.token_to_id
            self._sentence_piece = NumberCommas(
                self._sentence_piece, len(pieces), splits, to_token
            )

    def _set_proto_tf(self, proto):
        # Raises an error for a damaged model, which could end the process in
        # tensorflow_text.
        sentencepiece.SentencePieceProcessor(model_proto=proto)
        super()._set_proto_tf(proto)
        _keep_model(self._sentence_piece, proto)

    def _rows(self, texts: TFTensor) -> TFRagged:
        return self._sentence_piece.tokenize(self.clean_texts(texts))

    def clean_texts(self, texts: TFTensor) -> TFTensor:
        """Clean strings for the model, in training and use. Works in a graph."""
        text = tf.strings.regex_replace(to_utf8(texts), _SPACES, " ")
        text = tf.strings.regex_replace(text, "``|''", '"')
        if not self.keep_accents:
            text = tf_text.normalize_utf8(text, "NFKD")
            text = tf.strings.regex_replace(text, combining_marks(), "")
        return tf.strings.lower(text, "utf-8") if self.lowercase else text

    def clean_steps(self) -> list[Step]:
        """List the steps of `clean_texts`, as in a `tokenizer.json`'s normalizer."""
        steps = [replace(_SPACES, " ", "Regex"), replace("``|''", '"', "Regex")]
        if not self.keep_accents:
            steps += [{"type": "NFKD"}, replace(combining_marks(), "", "Regex")]
        if self.lowercase:
            steps += [replace(_LAST_SIGMA, "ς", "Regex"), {"type": "Lowercase"}]
        return steps

    def split_commas(self) -> list[str]:
        """List the pieces that are split before a comma, which pipelines can't do."""
        model = self._sentence_piece
        splits = model.splits if isinstance(model, NumberCommas) else ()
        return [self.id_to_token(number) for number in splits]

    def get_config(self) -> Config:
        config = super().get_config()
        return {
            **config,
            "lowercase": self.lowercase,
            "keep_accents": self.keep_accents,
            "split_number_commas": self.split_number_commas,
        }


class PlainSentencePiece(NormalizedSentencePiece):
    """A SentencePiece model that contains all of its clean-up.

    Args:
        proto: path of a `spiece.model`, or its content as bytes.
        **kwargs: arguments of `keras_hub.tokenizers.SentencePieceTokenizer`.
    """

    def __init__(self, proto: Path | bytes | None = None, **kwargs: Any) -> None:
        super().__init__(proto, keep_accents=True, split_number_commas=False, **kwargs)

    def clean_texts(self, texts: TFTensor) -> TFTensor:
        return without_nul(to_utf8(texts))

    def clean_steps(self) -> list[Step]:
        return [replace(r"\x{0}", " ", "Regex")]

    def get_config(self) -> Config:
        config = super().get_config()
        for name in ("lowercase", "keep_accents", "split_number_commas"):
            del config[name]
        return config


class _SharedModel(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model in TensorFlow's memory, with a name.

    `tensorflow_text` gives its models no name. A resource without a name is freed
    together with the kernel that made it. TensorFlow drops its kernels when a seed is
    set (`keras.utils.set_random_seed`) or the session is cleared
    (`keras.utils.clear_session`). After that all calls would fail with `NotFoundError`,
    also in datasets that were made before.

    Args:
        create: the op that makes the resource.
        proto: bytes. The model. Equal models are in memory only once.
    """

    def __init__(self, create: Any, proto: bytes) -> None:
        super().__init__()
        name = f"sentence_piece_{hashlib.sha256(proto).hexdigest()}"
        self._create = functools.partial(create, model=proto, shared_name=name)
        _ = self.resource_handle  # makes the resource now, outside of any graph

    def _create_resource(self):
        return self._create()


def _keep_model(tokenizer, proto):
    """Let a tokenizer of `tensorflow_text` use a `_SharedModel`.

    There is no public way to name the model, so two private names of `tensorflow_text`
    are used. If a version lacks them, the tokenizer keeps its own model.
    """
    module = sys.modules[type(tokenizer).__module__]
    ops = getattr(module, "gen_sentencepiece_tokenizer", None)
    create = getattr(ops, "sentencepiece_op", None)
    if create is not None and hasattr(tokenizer, "_model_resource"):
        tokenizer._model_resource = _SharedModel(create, proto)


@keras.saving.register_keras_serializable("keras_bertfam")
class AlbertTokenizer(NormalizedSentencePiece):
    """ALBERT's tokenizer, with the ids of the original.

    `keras_hub.tokenizers.AlbertTokenizer` neither lower-cases nor strips accents, so
    capitals become unknown tokens there.

    Args:
        proto: path of a `spiece.model`, or its content as bytes.
        lowercase: bool. Defaults to `True`.
        keep_accents: bool. Defaults to `False`.
        split_number_commas: bool. Whether the comma after a number is a separate token:
            `1980,` becomes `▁1980` and `,`. The original code does it, so the model was
            trained with such tokens. `transformers` doesn't. Defaults to `True`.
        **kwargs: arguments of `keras_hub.tokenizers.SentencePieceTokenizer`.

    Returns:
        Called on strings of shape `(batch,)`, a `tf.RaggedTensor` of shape
        `(batch, None)`, also in eager mode. Called on a single string, a tensor of
        shape `(None,)`.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.AlbertTokenizer("spiece.model")
    tokenizer(["This is a test."])
    ```

    Reference: [Lan et al., 2019](https://arxiv.org/abs/1909.11942).
    """

    special_token_names = {
        "cls": "[CLS]",
        "sep": "[SEP]",
        "pad": "<pad>",
        "mask": "[MASK]",
        "start": "[CLS]",
        "end": "[SEP]",
    }

    def __init__(
        self,
        proto: Path | bytes | None = None,
        lowercase: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(proto, lowercase=lowercase, **kwargs)


@keras.saving.register_keras_serializable("keras_bertfam")
class XLNetTokenizer(NormalizedSentencePiece):
    """XLNet's tokenizer.

    `start_token` and `end_token` are `<cls>` and `<sep>`. XLNet puts both after the
    text.

    Args:
        proto: path of a `spiece.model`, or its content as bytes.
        lowercase: bool. Defaults to `False`.
        keep_accents: bool. Defaults to `False`.
        split_number_commas: bool. See `AlbertTokenizer`. Defaults to `True`.
        **kwargs: arguments of `keras_hub.tokenizers.SentencePieceTokenizer`.

    Returns:
        See `AlbertTokenizer`.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.XLNetTokenizer("spiece.model")
    tokenizer(["Hello, my dog is cute"])
    ```

    Reference: [Yang et al., 2019](https://arxiv.org/abs/1906.08237).
    """

    special_token_names = {
        "cls": "<cls>",
        "sep": "<sep>",
        "pad": "<pad>",
        "mask": "<mask>",
        "start": "<cls>",
        "end": "<sep>",
    }
