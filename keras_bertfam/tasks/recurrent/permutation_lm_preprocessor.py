"""Turn raw text into rows with factorisation orders."""

from typing import Any, Literal

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.permute_tokens import PermuteTokens
from keras_bertfam.layers.data.streams.parallel_streams import ParallelRows
from keras_bertfam.tasks.text_preprocessor import TextPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import special_token_ids, word_start_table
from keras_bertfam.types import Config, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class PermutationLMPreprocessor(TextPreprocessor):
    """Makes permutation language model examples from text.

    `dataset` lays out documents in parallel streams, so that each row continues the
    same row of the batch before, and draws orders and targets anew in each epoch. A row
    is `[reused tokens, A, end, B, end, start]`. The next row begins `reuse_length`
    tokens later in the stream; its reused tokens repeat the text of A and B. Called on
    strings, the preprocessor makes rows `[text, end, start]`, padded on the left; their
    orders depend only on the ids and `seed`.

    The `batch_size` of `dataset` is the number of streams, which must be even for both
    directions. Documents are shuffled, not rows. All rows are full, so `packing` and
    `tokens_per_batch` can't be given.

    Args:
        tokenizer: a tokenizer layer, such as
            `keras_bertfam.tokenizers.BertTokenizer`. Its start token is used as XLNet's
            `<cls>`, its end token as `<sep>`, and also as `<eod>` if it has no such
            token.
        sequence_length: int. Tokens in a row, special ones included. Defaults
            to `128`.
        reuse_length: int. Tokens of a row that are repeated in the next one; `0` for
            none. Defaults to half of `sequence_length`.
        mask_selection_length: int or `None`. Targets in a row; see `PermuteTokens`.
        perm_size: int or `None`. See `PermuteTokens`.
        max_words: int. The most words (or tokens) of a span.
        alpha, beta: ints. See `PermuteTokens`: about `beta / alpha` of the
            tokens are targets, the paper's `1 / K`.
        span_unit: `"word"` or `"token"`: the units of spans. Defaults to `"word"`.
        both_directions: bool. Whether half of the rows run backwards; `batch_size` must
            then be even. Defaults to `True`, as published.
        next_rate: float. The probability that B follows A; see `join_segments`.
        seed: int. Decides every cut, order and target. Defaults to `0`.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`.
        seed: integer tensor of shape `(2,)` or `None`.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids`, `segment_ids` and
        `perm_ranks`, int32 `(batch, length)`, `padding_mask`, bool, and
        `mask_positions`, int32 `(batch, slots)`; the ids there, int32 `(batch,
        slots)`; and float32 weights, 1 for a target and 0 for an empty slot.
        Batches of `dataset` also have `continues` and, with `both_directions`,
        `reversed_rows`, both bool `(batch,)`.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.XLNetTokenizer("spiece.model")
    preprocessor = keras_bertfam.tasks.PermutationLMPreprocessor(
        tokenizer, sequence_length=128
    )
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    Reference: [Yang et al., 2019](https://arxiv.org/abs/1906.08237), sections
    2.3 to 2.5 and 3.1.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        reuse_length: int | None = None,
        mask_selection_length: int | None = None,
        perm_size: int | None = None,
        max_words: int = 5,
        alpha: int = 6,
        beta: int = 1,
        span_unit: Literal["word", "token"] = "word",
        both_directions: bool = True,
        next_rate: float = 0.5,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, seed=seed, **kwargs)
        self._reuse_length = reuse_length
        # Three special tokens, and two tokens to cut between.
        if not 0 <= self.reuse_length <= sequence_length - 5:
            raise ValueError(
                "`reuse_length` must be at least 0, and leave 5 tokens of "
                f"sequence_length={sequence_length}. Received: {self.reuse_length}."
            )
        if not 0 <= next_rate <= 1:
            raise ValueError(f"`next_rate` must be in [0, 1]. Received: {next_rate}.")
        if span_unit not in ("word", "token"):
            raise ValueError(
                f'`span_unit` must be "word" or "token". Received: {span_unit!r}.'
            )
        self.mask_selection_length = mask_selection_length
        self.perm_size = perm_size
        self.max_words = max_words
        self.alpha = alpha
        self.beta = beta
        self.span_unit = span_unit
        self.both_directions = both_directions
        self.next_rate = next_rate
        self.build_if_ready()

    @property
    def reuse_length(self) -> int:
        """int: how many tokens of a row are repeated in the next row."""
        given = self._reuse_length
        return self.sequence_length // 2 if given is None else given

    def make_rows(self) -> ParallelRows:
        return ParallelRows(
            self.tokenizer,
            self.sequence_length,
            self.reuse_length,
            both_directions=self.both_directions,
            next_rate=self.next_rate,
        )

    def make_corruption(self) -> PermuteTokens:
        tokenizer = self.tokenizer
        words = self.span_unit == "word"
        return PermuteTokens(
            vocabulary_size=tokenizer.vocabulary_size(),
            special_token_ids=special_token_ids(tokenizer),
            pad_token_id=tokenizer.pad_token_id,
            mask_selection_length=self.mask_selection_length,
            reuse_length=self.reuse_length,
            perm_size=self.perm_size,
            max_words=self.max_words,
            alpha=self.alpha,
            beta=self.beta,
            starts_word=word_start_table(tokenizer) if words else None,
            seed=self.seed,
        )

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], TFTensor, TFTensor]:
        x = {
            **rows,
            "perm_ranks": corrupted["perm_ranks"],
            "mask_positions": corrupted["mask_positions"],
        }
        return x, corrupted["mask_ids"], corrupted["mask_weights"]

    def get_config(self) -> Config:
        names = (
            "mask_selection_length perm_size max_words alpha beta span_unit "
            "both_directions next_rate"
        )
        own = {name: getattr(self, name) for name in names.split()}
        return {**super().get_config(), "reuse_length": self._reuse_length, **own}
