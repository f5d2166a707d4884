"""Share code among the preprocessors that mask tokens."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.mask_tokens import MaskTokens
from keras_bertfam.layers.corruption.similar_words import (
    others_of,
    tokens_of_words,
)
from keras_bertfam.layers.corruption.strategies import MaskingStrategy, get_strategy
from keras_bertfam.layers.data.documents.marked_spans import (
    MarkedTokenizer,
    SegmentedTokenizer,
    with_spans,
)
from keras_bertfam.layers.data.prepared.token_corpus import TokenCorpus
from keras_bertfam.layers.data.rows.rows import PackedRows, is_prepared
from keras_bertfam.presets.families import family_of_tokenizer
from keras_bertfam.tasks.text_preprocessor import PackingPreprocessor
from keras_bertfam.tokenizers.counting import count_tokens
from keras_bertfam.tokenizers.pipeline_ops import special_token_ids, word_start_table
from keras_bertfam.types import Config, TFDataset, TFTensor, Tokenizer

Segmenter = Callable[[str], Iterable[int]]
_MOST_LETTERS = 4_000_000


@checked
class MaskingPreprocessor(PackingPreprocessor):
    """Base class of the preprocessors that mask tokens.

    A subclass makes the rows in `make_rows`, and inputs and targets in `example`. It
    sets its own attributes before it calls this constructor, which builds the
    preprocessor if the tokenizer is ready.

    Args:
        tokenizer: a tokenizer layer with a mask token.
        sequence_length: see `MaskedLMPreprocessor`, also for the other arguments.
        mask_selection_rate: float in [0, 1].
        mask_selection_length: int or `None`.
        mask_token_rate: float.
        random_token_rate: float.
        selections_per_row: `"bert"`, `"fairseq"`, `"spanbert"` or `None`.
        sequence_ids: bool.
        seed: int.
        strategy: a `MaskingStrategy`, its config, its name or `None`.
        replacement_unit: `"token"`, `"word"` or `"span"`.
        random_token_weights: sequence of floats or `None`.
        mask_special_tokens: bool or `None`.
        random_special_tokens: bool or `None`.
        segmenter: function or `None`.
        similar_words: dict or `None`.
        shuffle_rate: float in [0, 1].
    """

    return_span_bounds: ClassVar[bool] = False
    shuffle_slots: ClassVar[bool] = False

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        mask_selection_rate: float = 0.15,
        mask_selection_length: int | None = None,
        mask_token_rate: float = 0.8,
        random_token_rate: float = 0.1,
        selections_per_row: Literal["bert", "fairseq", "spanbert"] | None = None,
        sequence_ids: bool = False,
        seed: int = 0,
        strategy: MaskingStrategy | Config | str | None = None,
        replacement_unit: Literal["token", "word", "span"] = "token",
        random_token_weights: Sequence[float] | None = None,
        mask_special_tokens: bool | None = None,
        random_special_tokens: bool | None = None,
        segmenter: Segmenter | str | None = None,
        similar_words: Mapping[str, Sequence[str]] | str | None = None,
        shuffle_rate: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, seed, **kwargs)
        if getattr(tokenizer, "mask_token", None) is None:
            raise ValueError(
                "`tokenizer` must have a mask token. "
                f"Received: {type(tokenizer).__name__}."
            )
        settings = or_published(
            tokenizer,
            strategy=strategy,
            selections_per_row=selections_per_row,
            mask_special_tokens=mask_special_tokens,
            random_special_tokens=random_special_tokens,
        )
        self.mask_selection_rate = mask_selection_rate
        self.mask_selection_length = mask_selection_length
        self.mask_token_rate = mask_token_rate
        self.random_token_rate = random_token_rate
        self.selections_per_row = settings["selections_per_row"]
        self.sequence_ids = sequence_ids
        self.strategy = get_strategy(settings["strategy"])
        self.replacement_unit = replacement_unit
        self.random_token_weights = (
            None
            if random_token_weights is None
            else [float(weight) for weight in random_token_weights]
        )
        self.mask_special_tokens = settings["mask_special_tokens"]
        self.random_special_tokens = settings["random_special_tokens"]
        if segmenter is not None and self.strategy.uses_marks:
            raise ValueError(
                "`segmenter` must be `None` with a strategy that reads marks of the "
                f"text. Received: {type(self.strategy).__name__}, segmenter="
                f"{segmenter!r}."
            )
        self.segmenter = _registered(segmenter)
        self.shuffle_rate = shuffle_rate
        self.similar_words = _table(similar_words)
        self.build_if_ready()

    @property
    def text_tokenizer(self) -> Any:
        if self.segmenter is not None:
            return SegmentedTokenizer(self.tokenizer, self.segmenter)
        if not self.strategy.uses_marks:
            return self.tokenizer
        return MarkedTokenizer(self.tokenizer, self.strategy.marked)

    @property
    def prompt_tokenizer(self) -> Any:
        # There, nothing is masked by words, and an exported model runs without Python.
        return self.text_tokenizer if self.segmenter is None else self.tokenizer

    def encode(self, texts: Any, padding: str = "longest") -> dict[str, TFTensor]:
        rows = self._with_spans(super().encode(texts, padding))
        return {name: value for name, value in rows.items() if name != "span_ids"}

    def corrupt(self, rows: dict[str, TFTensor], seed: TFTensor | None = None) -> Any:
        return super().corrupt(self._with_spans(rows), seed)

    def _with_spans(self, rows):
        marked = self.strategy.uses_marks or self.segmenter is not None
        if not marked or "span_ids" in rows:
            return rows  # a user's own rows may have them
        return with_spans(rows, self.tokenizer.vocabulary_size())

    def packed_rows(self, packing: str) -> PackedRows:
        """Make rows of text between start and end tokens, for `make_rows`.

        Args:
            packing: `"full"`, `"doc"` or `"best_fit"`: the default for `dataset`.
        """
        return PackedRows(
            self.text_tokenizer,
            self.sequence_length,
            start_token_id=self.tokenizer.start_token_id,
            end_token_id=self.tokenizer.end_token_id,
            packing=packing,
            sequence_ids=self.sequence_ids,
        )

    def make_corruption(self) -> MaskTokens:
        tokenizer = self.tokenizer
        similar = self.similar_words
        words = self.strategy.uses_words or self.replacement_unit == "word"
        words = words or similar is not None
        drawn, weights = self._random_tokens()
        kept = [] if self.mask_special_tokens else special_token_ids(tokenizer)
        return MaskTokens(
            vocabulary_size=tokenizer.vocabulary_size(),
            mask_token_id=tokenizer.mask_token_id,
            pad_token_id=tokenizer.pad_token_id,
            unselectable_token_ids=kept,
            mask_selection_rate=self.mask_selection_rate,
            mask_selection_length=self.slots(),
            mask_token_rate=self.mask_token_rate,
            random_token_rate=self.random_token_rate,
            random_token_ids=drawn,
            random_token_weights=weights,
            starts_word=word_start_table(tokenizer) if words else None,
            strategy=self.strategy,
            replacement_unit=self.replacement_unit,
            selections_per_row=self.selections_per_row,
            return_span_bounds=self.return_span_bounds,
            shuffle_slots=self.shuffle_slots,
            similar_tokens=(
                None if similar is None else tokens_of_words(tokenizer, similar)
            ),
            shuffle_rate=self.shuffle_rate,
            unshuffled_token_ids=special_token_ids(tokenizer),
            seed=self.seed,
        )

    def adapt(self, documents: TFDataset | TokenCorpus) -> None:
        """Count tokens, if the strategy needs counts and has none yet.

        Args:
            documents: `tf.data.Dataset` of scalar strings, or a prepared corpus. It is
                read once.

        Raises:
            ValueError: for documents that are packed already.
        """
        strategy: Any = self.strategy
        if not strategy.uses_counts or strategy.token_counts is not None:
            return
        if isinstance(documents, TokenCorpus):
            strategy.set_counts(documents.count_tokens())
            return
        if is_prepared(documents):
            raise ValueError(
                "`documents` must be strings if their tokens have to be counted: call "
                "`adapt` with the strings first. Received: packed documents."
            )
        strategy.set_counts(count_tokens(self.tokenizer, documents))

    def _learn_of(self, documents, training):
        if isinstance(documents, TokenCorpus):
            self._check_marks_and_words()
        super()._learn_of(documents, training)

    def _check_marks_and_words(self):
        if self.segmenter is not None:
            raise ValueError(
                "`segmenter` must be `None` with a prepared corpus, whose text is "
                f"tokens already. Received: {self.segmenter!r}."
            )
        if self.strategy.uses_marks and self.strategy.marked is not None:
            raise ValueError(
                "`strategy` must not read marks of the text with a prepared corpus, "
                "whose text is tokens already. Received: "
                f"{type(self.strategy).__name__}, which looks for marks of kind "
                f"{self.strategy.marked!r}."
            )

    def _random_tokens(self):
        """Give the ids that replace tokens (`None` for all) and their probabilities."""
        weights = self.random_token_weights
        tokenizer, vocabulary = self.tokenizer, self.tokenizer.get_vocabulary()
        left_out = {*special_token_ids(tokenizer)}
        if (
            self.random_special_tokens
        ):  # the rows' own tokens, not those that a user added
            left_out -= {tokenizer.start_token_id, tokenizer.end_token_id}
            if not left_out:
                return None, weights
        else:
            left_out |= {tokenizer.pad_token_id}
            unknown = ("<unk>", "[UNK]")
            left_out |= {i for i, token in enumerate(vocabulary) if token in unknown}
        ids = [i for i in range(len(vocabulary)) if i not in left_out]
        return ids, None if weights is None else [weights[i] for i in ids]

    def slots(self) -> int | None:
        """Count a row's mask slots; `None` leaves that to `MaskTokens`."""
        return self.mask_selection_length

    def masked_inputs(
        self, rows: dict[str, TFTensor], masked: dict[str, TFTensor]
    ) -> dict[str, TFTensor]:
        """Make the model's inputs: rows with masks, and the masks' positions.

        Args:
            rows: see `example`. `span_ids`, int32 `(batch, length)`, are dropped: only
                the strategy `GivenSpans` reads them.
            masked: what `MaskTokens` gives.
        """
        x = {name: value for name, value in rows.items() if name != "span_ids"}
        x["token_ids"] = masked["token_ids"]
        x["mask_positions"] = masked["mask_positions"]
        return x

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "mask_selection_rate": self.mask_selection_rate,
            "mask_selection_length": self.mask_selection_length,
            "mask_token_rate": self.mask_token_rate,
            "random_token_rate": self.random_token_rate,
            "random_token_weights": self.random_token_weights,
            "strategy": keras.saving.serialize_keras_object(self.strategy),
            "replacement_unit": self.replacement_unit,
            "selections_per_row": self.selections_per_row,
            "sequence_ids": self.sequence_ids,
            "mask_special_tokens": self.mask_special_tokens,
            "random_special_tokens": self.random_special_tokens,
            "segmenter": _name(self.segmenter),
            "similar_words": _lines(self.similar_words),
            "shuffle_rate": self.shuffle_rate,
        }


def _table(similar_words):
    """Read words with similar words from a dict, or from the result of `_lines`."""
    if similar_words is None:
        return None
    if isinstance(similar_words, str):
        lines = (line.split("\t") for line in similar_words.split("\n"))
        return {word: others for word, *others in lines}
    known: dict[str, Any] = {
        word: [*others] if isinstance(others, tuple) else others
        for word, others in similar_words.items()
    }
    words = [*known, *others_of(known)]
    wrong = next((word for word in words if {*word} & {*"\t\n"}), None)
    if wrong is not None:
        raise ValueError(
            "`similar_words` must be of words without tabs and line ends. Received: "
            f"{wrong!r}."
        )
    size = sum(len(word) + 1 for word in words)
    if size > _MOST_LETTERS:
        raise ValueError(
            f"`similar_words` must have at most {_MOST_LETTERS:,} letters, as presets "
            f"hold. Received: {size:,}. List fewer words, or fewer for each."
        )
    return known


def _lines(similar_words):
    """Write a table as lines of text, because presets' configs limit lists."""
    if similar_words is None:
        return None
    return "\n".join(
        "\t".join([word, *others]) for word, others in similar_words.items()
    )


def _registered(segmenter):
    """Find a function, given itself or its registered name."""
    if isinstance(segmenter, str):
        segmenter = keras.saving.get_registered_object(name := segmenter)
        if segmenter is None:
            raise ValueError(
                "`segmenter` must be a function or the name of one that is registered "
                "by `keras.saving.register_keras_serializable`, in a module that has "
                f"been imported. Received: {name!r}."
            )
    if segmenter is not None and not callable(segmenter):
        raise ValueError(
            f"`segmenter` must be a function of a string. Received: {segmenter!r}."
        )
    return segmenter


def _name(segmenter):
    if segmenter is None:
        return None
    return keras.saving.get_registered_name(segmenter)


# Settings that differ between families, with BERT's values.
_USUAL: Config = {
    "strategy": "tokens",
    "selections_per_row": "bert",
    "mask_special_tokens": False,
    "random_special_tokens": True,
    "sentence_objective": "nsp",
    "separators": 1,
}


def or_published(tokenizer: Tokenizer, **settings: Any) -> Config:
    """Replace settings that are `None` by those of a tokenizer's family.

    Args:
        tokenizer: a tokenizer layer.
        **settings: settings that differ between families.

    Returns:
        Dict of the same names.
    """
    published = dict(_USUAL)
    record = family_of_tokenizer(tokenizer)
    if record is not None:
        recipe = record.pretraining[""]
        published |= {**recipe.masking, **recipe.task_arguments}
        published["separators"] = record.layout.separators
    return {
        name: published[name] if value is None else value
        for name, value in settings.items()
    }
