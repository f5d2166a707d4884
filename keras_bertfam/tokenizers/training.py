"""Vocabularies learned from text."""

import collections
import io
import json
import numbers
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import sentencepiece
import tokenizers as hugging_face

from keras_bertfam.arguments import checked
from keras_bertfam.tokenizers.byte_level import (
    BartTokenizer,
    EuroBertTokenizer,
    GPT2Tokenizer,
    ModernBertTokenizer,
    RobertaTokenizer,
)
from keras_bertfam.tokenizers.deberta import DebertaTokenizer, DebertaV2Tokenizer
from keras_bertfam.tokenizers.gemma import BYTES, SPACE, GemmaTokenizer
from keras_bertfam.tokenizers.gpt import WORD_END, GPTTokenizer
from keras_bertfam.tokenizers.learning import (
    count_words,
    learn_byte_pairs,
    learn_word_pieces,
    split_words,
    without_rare_characters,
)
from keras_bertfam.tokenizers.pipeline_ops import as_graph_layer
from keras_bertfam.tokenizers.sentence_piece import (
    AlbertTokenizer,
    NormalizedSentencePiece,
    XLNetTokenizer,
)
from keras_bertfam.tokenizers.steps import Step, clean_texts, split_by
from keras_bertfam.tokenizers.t5 import T5Tokenizer, sentinel
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.tokenizers.training_texts import (
    clean_batches,
    counted_lines,
    one_line,
    pieces_after_space,
    read_texts,
    recount,
    text_parts,
)
from keras_bertfam.tokenizers.word_piece import (
    MPNET_TOKENS,
    SPECIAL_TOKENS,
    BertTokenizer,
    MPNetTokenizer,
)
from keras_bertfam.tokenizers.xlm_roberta import CamembertTokenizer, XLMRobertaTokenizer
from keras_bertfam.types import Path, TFDataset, Tokenizer

# For byte pairs: the special tokens before the other tokens, those after them, and the
# sign at a word's end if tokens consist of characters and not of bytes.
_ROBERTA_TOKENS = (("<s>", "<pad>", "</s>", "<unk>"), ("<mask>",), None)
BYTE_PAIR: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...], str | None]] = {
    "roberta": (RobertaTokenizer, *_ROBERTA_TOKENS),
    "bart": (BartTokenizer, *_ROBERTA_TOKENS),
    "modernbert": (
        ModernBertTokenizer,
        (),
        ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"),
        None,
    ),
    "deberta": (
        DebertaTokenizer,
        ("[PAD]", "[CLS]", "[SEP]", "[UNK]"),
        ("[MASK]",),
        None,
    ),
    "eurobert": (
        EuroBertTokenizer,
        (),
        ("<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"),
        None,
    ),
    "mmbert": (
        GemmaTokenizer,
        ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *BYTES),
        (),
        None,
    ),
    "gpt2": (GPT2Tokenizer, (), ("<|endoftext|>",), None),
    "gpt": (GPTTokenizer, ("<unk>",), (), WORD_END),
}
# The same for WordPiece.
WORD_PIECE: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {
    "bert": (BertTokenizer, SPECIAL_TOKENS, ()),
    "mpnet": (MPNetTokenizer, (*MPNET_TOKENS, "[UNK]"), ("<mask>",)),
}
# Settings and special pieces of the published SentencePiece models, in the order of
# ids.
SENTENCE_PIECE: dict[str, tuple[Any, dict[str, Any], list[str], list[str]]] = {
    "albert": (
        AlbertTokenizer,
        {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1},
        ["[CLS]", "[SEP]", "[MASK]"],
        ["(", ")", '"', "-", ".", "–", "£", "€"],
    ),
    "xlnet": (
        XLNetTokenizer,
        {"unk_id": 0, "bos_id": 1, "eos_id": 2},
        ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"],
        ["<eop>", ".", "(", ")", '"', "-", "–", "£", "€"],
    ),
    # `in_order_of_fairseq` gives the pieces their published ids.
    "xlm-roberta": (
        XLMRobertaTokenizer,
        {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3},
        ["<mask>"],
        [],
    ),
    "camembert": (
        CamembertTokenizer,
        {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3},
        ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED", "<mask>"],
        [],
    ),
    # `[MASK]` is added by the tokenizer.
    "deberta-v2": (
        DebertaV2Tokenizer,
        {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
        | {"pad_piece": "[PAD]", "bos_piece": "[CLS]"}
        | {"eos_piece": "[SEP]", "unk_piece": "[UNK]"},
        [],
        [],
    ),
    "t5": (T5Tokenizer, {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}, [], []),
}


def known_family(families: dict[str, Any], family: str) -> Any:
    """Look up a family in a table.

    Raises:
        ValueError: for an unknown family.
    """
    if family not in families:
        raise ValueError(
            f"`family` must be one of {sorted(families)}. Received: {family!r}."
        )
    return families[family]


MAX_VOCABULARY_SIZE = 10_000_000  # `tokenizers` allocates it all before it begins


@checked
def train_word_piece(
    documents: TFDataset | Path | Sequence[Path] | Mapping[str, int],
    vocabulary_size: int,
    lowercase: bool = True,
    min_frequency: int = 2,
    family: str = "bert",
    **kwargs: Any,
) -> BertTokenizer:
    """Learn a WordPiece vocabulary from text.

    The vocabulary has the 1,000 most frequent characters, or as many more as nearly the
    whole text is made of, and other tokens that occur often enough. A warning says if
    the text has fewer tokens than `vocabulary_size`, or more characters than it has
    room for.

    Args:
        documents: `tf.data.Dataset` of scalar strings; a mixture of
            `layers.sample_corpora`; paths, as `read_documents` takes them; or
            a dict of words and their counts, see `corpora.count_words`.
        vocabulary_size: int. The most tokens to learn, special ones included.
        lowercase: bool. Whether to lower-case and strip accents. Defaults to
            `True`.
        min_frequency: int. How often a token must occur. Defaults to `2`;
            `keras_hub.tokenizers.compute_word_piece_vocabulary` has 10.
        family: `"bert"`, which all families with WordPiece use, except MPNet; or
            `"mpnet"` for a `MPNetTokenizer`. Defaults to `"bert"`.
        **kwargs: passed to the tokenizer, whose `normalizer` and `pre_tokenizer`
            prepare the documents, too.

    Returns:
        A `BertTokenizer`, whose first tokens are [PAD], [UNK], [CLS], [SEP], [MASK]. Or
        a `MPNetTokenizer`, whose first tokens are `<s>`, `<pad>`, `</s>`, `<unk>`,
        [UNK], and whose last is `<mask>`.

    Raises:
        FileNotFoundError: If there is no file of a path.
        ValueError: If the documents aren't scalar strings or have no word; if
            `vocabulary_size` isn't an int above the number of special tokens; if
            `min_frequency` isn't positive; or for an unknown family.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_word_piece(documents, 20)
    ```
    """
    cls, first, last = known_family(WORD_PIECE, family)
    _check_size(vocabulary_size, len(first + last), "special tokens")
    if not isinstance(min_frequency, numbers.Integral) or min_frequency < 1:
        raise ValueError(
            f"`min_frequency` must be a positive int. Received: {min_frequency!r}."
        )

    made = cls(lowercase=lowercase, **kwargs)  # without a vocabulary
    split = split_words
    if made.pre_tokenizer is not None:
        split = lambda texts: split_by(texts, made.pre_tokenizer)[0]  # noqa: E731

    def clean(texts):
        if made.normalizer is None:  # as BERT, zero bytes included
            return clean_texts(to_utf8(texts), lowercase)
        return made.clean_texts(to_utf8(texts))

    if isinstance(documents, Mapping):
        counts = recount(documents, lambda words: split(clean(words)).to_list())
    else:
        counts = count_words(clean_batches(read_texts(documents), clean), split)
    vocabulary = learn_word_pieces(
        counts, vocabulary_size - len(last), first, min_frequency
    )
    vocabulary += last
    if len(vocabulary) < 0.9 * vocabulary_size:
        warnings.warn(
            f"The documents have {len(vocabulary)} tokens that occur "
            f"{min_frequency} times or more, for a vocabulary of {vocabulary_size}.",
            stacklevel=3,
        )
    tokenizer: BertTokenizer = cls(vocabulary, lowercase=lowercase, **kwargs)
    return tokenizer


@checked
def train_byte_pair(
    documents: TFDataset | Path | Sequence[Path] | Mapping[str, int],
    vocabulary_size: int,
    add_prefix_space: bool | None = None,
    family: str = "roberta",
    **kwargs: Any,
) -> Tokenizer:
    """Learn a vocabulary of byte-level BPE, the form of GPT-2 and RoBERTa, from text.

    A line's end becomes a space, like the gap between sentences in pre-training. The
    vocabulary contains all 256 bytes, so no text is unknown. GPT's vocabulary contains
    characters instead; characters that occur in no document are unknown. mmBERT's
    contains characters, and bytes for all others.

    Args:
        documents: `tf.data.Dataset` of scalar strings; a mixture of
            `layers.sample_corpora`; paths, as `read_documents` takes them; or
            a dict of words and their counts, see `corpora.count_words`.
        vocabulary_size: int. The most tokens to learn, special ones and the 256
            bytes included.
        add_prefix_space: bool. Whether to put a space before each text, so that its
            first word is tokenised like all others. Defaults to what `pre_tokenizer`
            says, or `False`.
        family: `"roberta"`, `"bart"`, `"modernbert"`, `"deberta"`, `"eurobert"`,
            `"mmbert"`, `"gpt2"` or `"gpt"`. It chooses the special tokens and
            the tokenizer's class. Defaults to `"roberta"`.
        **kwargs: passed to the tokenizer, whose `normalizer` and `pre_tokenizer`
            prepare the documents, too.

    Returns:
        The family's tokenizer, whose calls run in the graph:

        - `RobertaTokenizer` or `BartTokenizer`: the first tokens are `<s>`, `<pad>`,
          `</s>`, `<unk>`, the last is `<mask>`;
        - `ModernBertTokenizer`: the last are `[UNK]`, `[CLS]`, `[SEP]`, `[PAD]`,
          `[MASK]`;
        - `DebertaTokenizer`: the first are `[PAD]`, `[CLS]`, `[SEP]`, `[UNK]`, the last
          is `[MASK]`;
        - `EuroBertTokenizer`: the last are `<|begin_of_text|>`, `<|end_of_text|>`,
          `<|mask|>`;
        - `GemmaTokenizer`: the first are `<pad>`, `<eos>`, `<bos>`, `<unk>`, `<mask>`
          and the bytes;
        - `GPT2Tokenizer`: the last is `<|endoftext|>`;
        - `GPTTokenizer`: the first is `<unk>`.

    Raises:
        FileNotFoundError: If there is no file of a path.
        ValueError: If the documents aren't scalar strings, or no pair of characters
            occurs twice in them; or if `vocabulary_size` isn't an int above the number
            of special tokens and bytes.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_byte_pair(documents, 300)
    ```

    Reference: [Radford et al., 2019](
    https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf),
    section 2.2.
    """
    cls, first, last, word_end = known_family(BYTE_PAIR, family)
    if add_prefix_space is not None:
        kwargs["add_prefix_space"] = add_prefix_space
    made = cls(**kwargs)  # without a vocabulary; it checks the arguments
    special = [*first, *last]
    splitters = hugging_face.pre_tokenizers
    splitter: Any
    most_characters = None
    if cls is GemmaTokenizer:
        # A corpus without spaces, as a Chinese one, doesn't show their sign.
        alphabet, clean = [SPACE], one_line
        # Characters have half of the room: rare ones are written in bytes.
        most_characters = max(1, (vocabulary_size - len(special)) // 2)
        splitter = splitters.Metaspace(prepend_scheme="never")
    elif word_end is None:
        alphabet = splitters.ByteLevel.alphabet()
        splitter = _splitter(made.pre_tokenizer_steps())

        def clean(texts):
            return made.clean_texts(one_line(texts))

    else:
        alphabet = []
        splitter, clean = splitters.WhitespaceSplit(), made.clean_texts
    least = len(special) + len(alphabet)
    _check_size(vocabulary_size, least, "special tokens and bytes")
    counts: Mapping[str, int] | None = None
    if isinstance(documents, Mapping):
        counts = recount(
            documents, lambda words: pieces_after_space(words, clean, splitter)
        )
    elif word_end is not None:
        # `tokenizers` would number characters with `</w>` in a random order.
        texts = text_parts(read_texts(documents), clean)
        counts = collections.Counter(
            piece for text in texts for piece, _ in splitter.pre_tokenize_str(text)
        )
    if counts is not None:
        if most_characters:
            counts = without_rare_characters(counts, most_characters, alphabet)
        tokens, merges = learn_byte_pairs(
            counts, vocabulary_size, special, alphabet, word_end or ""
        )
    else:
        limits: dict[str, Any] = {}
        if most_characters:
            alphabet = _frequent_characters(
                text_parts(read_texts(documents), clean), most_characters, alphabet
            )
            limits["limit_alphabet"] = len(alphabet)
        trained = hugging_face.Tokenizer(hugging_face.models.BPE())
        trained.pre_tokenizer = splitter
        trainer = hugging_face.trainers.BpeTrainer(
            vocab_size=vocabulary_size,
            min_frequency=2,
            show_progress=False,
            special_tokens=special,
            initial_alphabet=alphabet,
            **limits,
        )
        trained.train_from_iterator(text_parts(read_texts(documents), clean), trainer)
        model = json.loads(trained.to_str())["model"]
        tokens, merges = sorted(model["vocab"], key=model["vocab"].get), model["merges"]
    if not merges:
        raise ValueError(
            "`documents` must have a pair of characters that occurs twice. Received: "
            "none."
        )
    others = [token for token in tokens if token not in special]
    tokenizer = cls(
        {token: number for number, token in enumerate([*first, *others, *last])},
        [" ".join(pair) for pair in merges],
        **kwargs,
    )
    return as_graph_layer(tokenizer)


def _frequent_characters(texts, count, alphabet):
    """List the most frequent characters, those of an alphabet first.

    `tokenizers` would choose at random among equally frequent ones.
    """
    frequencies: collections.Counter[str] = collections.Counter()
    for text in texts:
        frequencies.update(text)
    others = {*frequencies} - {*alphabet, " "}
    ranked = sorted(others, key=lambda c: (-frequencies[c], c))
    return [*alphabet, *ranked[: max(0, count - len(alphabet))]]


def _splitter(steps: list[Step]) -> Any:
    """Make the pre-tokenizer of `tokenizers` that does steps of a `tokenizer.json`."""
    content = {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }
    return hugging_face.Tokenizer.from_str(json.dumps(content)).pre_tokenizer


@checked
def train_sentence_piece(
    documents: TFDataset | Path | Sequence[Path] | Mapping[str, int],
    vocabulary_size: int,
    model_type: str = "unigram",
    family: str = "albert",
    sentinels: int = 0,
    character_coverage: float = 0.99995,
    **kwargs: Any,
) -> NormalizedSentencePiece:
    """Learn a SentencePiece model from text, after the tokenizer's own clean-up.

    Args:
        documents: `tf.data.Dataset` of scalar strings; a mixture of
            `layers.sample_corpora`; paths, as `read_documents` takes them; or
            a dict of words and their counts, see `corpora.count_words`.
        vocabulary_size: int. The most pieces to learn, special ones included.
        model_type: `"unigram"`, as in ALBERT's and XLNet's papers, or `"bpe"`. Defaults
            to `"unigram"`.
        family: `"albert"`, `"xlnet"`, `"xlm-roberta"`, `"camembert"`, `"deberta-v2"` or
            `"t5"`. It chooses the special pieces and the tokenizer's class. Defaults to
            `"albert"`.
        sentinels: int. How many sentinels `<extra_id_0>`, `<extra_id_1>`... to add
            after the special pieces. T5 puts them in place of spans. In texts a
            sentinel is a single token. Defaults to `0`; T5's tokenizer then adds its
            100, in addition to `vocabulary_size`.
        character_coverage: float from 0.98 to 1. The share of the text whose characters
            get a piece; other characters are unknown. Defaults to `0.99995`.
        **kwargs: passed to the tokenizer, such as `lowercase` and `keep_accents`.
            Published models strip accents. In Japanese that makes "か" of "が".

    Returns:
        The family's tokenizer, such as an `AlbertTokenizer`. Special pieces have the
        ids of the published models, and so has punctuation that is always a piece.

    Raises:
        FileNotFoundError: If there is no file of a path.
        ValueError: If the documents aren't scalar strings or have no word; if
            `vocabulary_size` isn't an int, or less than the characters need; or if
            another argument is out of its range.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_sentence_piece(documents, 40)
    ```

    Reference: [Kudo and Richardson, 2018](https://arxiv.org/abs/1808.06226).
    """
    if model_type not in ("unigram", "bpe"):
        raise ValueError(
            f'`model_type` must be "unigram" or "bpe". Received: {model_type!r}.'
        )
    if not _is_int(sentinels) or not 0 <= sentinels < MAX_VOCABULARY_SIZE:
        raise ValueError(
            f"`sentinels` must be an int that is not negative. Received: {sentinels!r}."
        )
    if not 0.98 <= character_coverage <= 1:
        raise ValueError(
            "`character_coverage` must be from 0.98 to 1. Received: "
            f"{character_coverage!r}."
        )
    cls, ids, control, symbols = known_family(SENTENCE_PIECE, family)
    symbols = [*symbols, *map(sentinel, range(sentinels))]
    number = sum(type(value) is int and value >= 0 for value in ids.values())
    number += cls.pieces_added + len(control) + len(symbols)
    _check_size(vocabulary_size, number, "special pieces")
    tokenizer = cls(**kwargs)
    if isinstance(documents, Mapping):
        sentences, form = counted_lines(documents, tokenizer.clean_texts), "tsv"
    else:
        sentences, form = (
            text_parts(read_texts(documents), tokenizer.clean_texts),
            "text",
        )
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences,
            input_format=form,
            model_writer=model,
            model_type=model_type,
            vocab_size=vocabulary_size - cls.pieces_added,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            control_symbols=control,
            user_defined_symbols=symbols,
            num_threads=16,  # fixed, since sums depend on it
            minloglevel=2,
            **ids,
        )
    except RuntimeError as error:
        needed = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
        if needed is None:
            raise
        raise ValueError(
            f"`vocabulary_size` must be at least {needed[1]}, for the special pieces "
            "and the characters that `character_coverage` asks for. Received: "
            f"{vocabulary_size}."
        ) from None
    tokenizer.set_proto(model.getvalue())
    return tokenizer


def _is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _check_size(size, least, what):
    if not _is_int(size) or not least < size <= MAX_VOCABULARY_SIZE:
        raise ValueError(
            f"`vocabulary_size` must be an int above {least}, the number of {what}, "
            f"and at most {MAX_VOCABULARY_SIZE}. Received: {size!r}."
        )
