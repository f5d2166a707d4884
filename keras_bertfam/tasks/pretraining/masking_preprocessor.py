"""What the preprocessors share whose corruption is masking."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import keras

from keras_bertfam.layers.corruption.mask_tokens import MaskTokens
from keras_bertfam.layers.corruption.strategies import MaskingStrategy, get_strategy
from keras_bertfam.layers.data.rows import PackedRows
from keras_bertfam.tasks.pretraining.text_preprocessor import PackingPreprocessor
from keras_bertfam.tokenizers.graph import special_token_ids, word_start_table
from keras_bertfam.types import Config, TFTensor, Tokenizer


class MaskingPreprocessor(PackingPreprocessor):
    """Base of the preprocessors that mask tokens.

    A subclass says in `make_rows` which rows it masks, and in `example` what the
    inputs and targets are. It sets attributes of its own before it calls this
    constructor, which builds the preprocessor if the tokenizer is ready.

    Args:
        tokenizer: a tokenizer layer with a mask token.
        sequence_length: see `MaskedLMPreprocessor`, and so are all others.
        mask_selection_rate: float in [0, 1].
        mask_selection_length: int or `None`.
        mask_token_rate: float.
        random_token_rate: float.
        selections_per_row: `"bert"`, `"fairseq"` or `"spanbert"`.
        sequence_ids: bool.
        seed: int.
        strategy: a `MaskingStrategy`, its config or its name.
        replacement_unit: `"token"`, `"word"` or `"span"`.
        random_token_weights: sequence of floats or `None`.
    """

    return_span_bounds: ClassVar[bool] = False

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        mask_selection_rate: float = 0.15,
        mask_selection_length: int | None = None,
        mask_token_rate: float = 0.8,
        random_token_rate: float = 0.1,
        selections_per_row: Literal["bert", "fairseq", "spanbert"] = "bert",
        sequence_ids: bool = False,
        seed: int = 0,
        strategy: MaskingStrategy | Config | str = "tokens",
        replacement_unit: Literal["token", "word", "span"] = "token",
        random_token_weights: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> None:
        if getattr(tokenizer, "mask_token", None) is None:
            raise ValueError(
                "`tokenizer` must have a mask token. "
                f"Received: {type(tokenizer).__name__}."
            )
        super().__init__(tokenizer, sequence_length, seed, **kwargs)
        self.mask_selection_rate = mask_selection_rate
        self.mask_selection_length = mask_selection_length
        self.mask_token_rate = mask_token_rate
        self.random_token_rate = random_token_rate
        self.selections_per_row = selections_per_row
        self.sequence_ids = sequence_ids
        self.strategy = get_strategy(strategy)
        self.replacement_unit = replacement_unit
        self.random_token_weights = (
            None
            if random_token_weights is None
            else [float(weight) for weight in random_token_weights]
        )
        self.build_if_ready()

    def packed_rows(self, packing: str) -> PackedRows:
        """Blocks between start and end tokens, for `make_rows`.

        Args:
            packing: `"full"` or `"doc"`, the default of `dataset`.
        """
        return PackedRows(
            self.tokenizer,
            self.sequence_length,
            start_token_id=self.tokenizer.start_token_id,
            end_token_id=self.tokenizer.end_token_id,
            packing=packing,
            sequence_ids=self.sequence_ids,
        )

    def make_corruption(self) -> MaskTokens:
        tokenizer = self.tokenizer
        words = self.strategy.uses_words or self.replacement_unit == "word"
        return MaskTokens(
            vocabulary_size=tokenizer.vocabulary_size(),
            mask_token_id=tokenizer.mask_token_id,
            pad_token_id=tokenizer.pad_token_id,
            unselectable_token_ids=special_token_ids(tokenizer),
            mask_selection_rate=self.mask_selection_rate,
            mask_selection_length=self.slots(),
            mask_token_rate=self.mask_token_rate,
            random_token_rate=self.random_token_rate,
            random_token_weights=self.random_token_weights,
            starts_word=word_start_table(tokenizer) if words else None,
            strategy=self.strategy,
            replacement_unit=self.replacement_unit,
            selections_per_row=self.selections_per_row,
            return_span_bounds=self.return_span_bounds,
            seed=self.seed,
        )

    def slots(self) -> int | None:
        """How many mask slots a row has; `None` leaves that to `MaskTokens`."""
        return self.mask_selection_length

    def masked_inputs(
        self, rows: dict[str, TFTensor], masked: dict[str, TFTensor]
    ) -> dict[str, TFTensor]:
        """What the model is given: rows with masks, and where they are.

        Args:
            rows: see `example`. `span_ids`, int32 `(batch, length)`, was for the
                strategy `GivenSpans`.
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
        }
