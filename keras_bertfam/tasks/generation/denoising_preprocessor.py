"""Turn raw text into inputs and targets of a denoising objective."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.denoise_tokens import DenoiseTokens
from keras_bertfam.layers.corruption.objectives import DenoisingObjective, get_objective
from keras_bertfam.layers.data.pairs.text_to_text import PairLayout, as_example
from keras_bertfam.layers.data.streams.document_stream import CorruptedRows
from keras_bertfam.tasks.generation.text_to_text_preprocessor import (
    PromptingPreprocessor,
)
from keras_bertfam.tasks.text_preprocessor import PackingPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import (
    decoder_start_id,
    special_token_ids,
    text_start_id,
)
from keras_bertfam.tokenizers.t5 import sentinel_ids
from keras_bertfam.types import Config, TFTensor, Tokenizer

_FULL_STOPS = (".", "。")
_SIGNS = "Ġ▁#"


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class DenoisingPreprocessor(PromptingPreprocessor, PackingPreprocessor):
    """Makes inputs and targets for `TextToText` from text, by a denoising objective.

    `dataset` cuts documents into rows for `fit`, and corrupts them anew in each epoch.
    Called on strings, the preprocessor corrupts each in a row of its own; the
    corruption depends only on the batch's ids and `seed`. `generate_preprocess` encodes
    strings without corruption; they may contain mask tokens and sentinels. A text that
    is too short to be corrupted stays as it is. An empty text gives no row of a
    dataset.

    By default documents form one stream, which is cut into rows that fill the inputs.
    With `packing="best_fit"` each document is a sequence of its own; it is cut if it is
    too long, and inputs and targets of several sequences share rows. Every objective
    works with every tokenizer that has the tokens it needs.

    Args:
        tokenizer: a tokenizer layer. Objectives that use sentinels need a tokenizer
            with sentinels, such as `keras_bertfam.tokenizers.T5Tokenizer`. Objectives
            that mask need one with a mask token, such as
            `keras_bertfam.tokenizers.BartTokenizer`, or with sentinels.
        sequence_length: int. Tokens of the inputs, special ones included. Defaults
            to `128`.
        objective: a `DenoisingObjective`, its config or its name, or a list of BART's
            noises; see `DenoiseTokens`. Defaults to `"random_spans"`, T5's.
        target_length: int or `None`. Tokens of the targets, special ones included.
            Defaults to the length that the objective needs for a text that fills the
            inputs. Rows with many short texts need more, for their sentinels and end
            tokens; otherwise inputs stay partly empty.
        decoder_start_token_id: int or `None`. The first token of the decoder's inputs.
            Defaults to the end token, as in BART, or to padding if texts have no start
            token, as in T5.
        seed: int. Decides every order and corruption. Defaults to `0`.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`.
        seed: integer tensor of shape `(2,)` or `None`: the seed of the corruption.

    Returns:
        `(x, y, sample_weight)`: a dict of `encoder_token_ids`, int32 `(batch,
        sequence_length)`, `decoder_token_ids`, int32 `(batch, target_length)`, and
        `encoder_padding_mask` and `decoder_padding_mask`, bool; the targets, int32
        `(batch, target_length)`; and float32 weights, 1 for a target and 0 for none.
        Batches of packed texts also have `encoder_sequence_ids` and
        `decoder_sequence_ids`, int32.

    Raises:
        ValueError: for an argument out of its range, an unknown objective, or a
            tokenizer without the tokens that the objective needs.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.train_sentence_piece(
        documents, 100, family="t5", sentinels=20)
    preprocessor = keras_bertfam.tasks.DenoisingPreprocessor(
        tokenizer, sequence_length=64, objective="random_spans")
    batches = preprocessor.dataset(documents, batch_size=8)
    ```

    References:
        [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 3.3;
        [Lewis et al., 2019](https://arxiv.org/abs/1910.13461), section 2.2;
        [Song et al., 2019](https://arxiv.org/abs/1905.02450), section 3.2.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        objective: DenoisingObjective | Config | str | Sequence[Any] = "random_spans",
        target_length: int | None = None,
        decoder_start_token_id: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            tokenizer=tokenizer, sequence_length=sequence_length, seed=seed, **kwargs
        )
        self.objective = get_objective(objective)
        self.target_length = target_length
        self.decoder_start_token_id = decoder_start_token_id
        self.build_if_ready()

    def make_rows(self) -> CorruptedRows:
        layer = self.make_corruption()
        return CorruptedRows(
            self.tokenizer,
            layer.text_length,
            layer.layout,
            layer.sequences,
            layer.rooms + layer.layout.specials,
        )

    def make_corruption(self) -> DenoiseTokens:
        tokenizer = self.tokenizer
        ids = {
            token: tokenizer.token_to_id(token) for token in tokenizer.get_vocabulary()
        }
        unknown = [name for name in self.objective.token_names if name not in ids]
        if unknown:
            raise ValueError(
                "`tokenizer` must have the tokens that the objective names. Received: "
                f"a vocabulary without {unknown}."
            )
        sentinels = sentinel_ids(tokenizer)
        mask = getattr(tokenizer, "mask_token_id", None)
        if mask is None and sentinels:
            mask = sentinels[0]
        start = self.decoder_start_token_id
        special = {*special_token_ids(tokenizer), tokenizer.pad_token_id}
        special |= {ids[token] for token in ("<unk>", "[UNK]") if token in ids}
        return DenoiseTokens(
            self.objective,
            self.sequence_length,
            self.target_length,
            vocabulary_size=tokenizer.vocabulary_size(),
            mask_token_id=mask,
            sentinel_ids=sentinels,
            special_token_ids=sorted(special),
            sentence_end_ids=[
                number
                for token, number in ids.items()
                if token.lstrip(_SIGNS) in _FULL_STOPS
            ],
            named_token_ids={name: ids[name] for name in self.objective.token_names},
            start_token_id=text_start_id(tokenizer),
            end_token_id=tokenizer.end_token_id,
            decoder_start_token_id=decoder_start_id(tokenizer)
            if start is None
            else start,
            pad_token_id=tokenizer.pad_token_id,
            seed=self.seed,
        )

    @property
    def layout(self) -> PairLayout:
        layout: PairLayout = self.parts()[1].layout
        return layout

    def corrupt(self, rows: dict[str, TFTensor], seed: TFTensor | None = None) -> Any:
        packed = "target_ids" in rows
        return as_example(rows) if packed else super().corrupt(rows, seed)

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], TFTensor, TFTensor]:
        return as_example(corrupted)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "objective": keras.saving.serialize_keras_object(self.objective),
            "target_length": self.target_length,
            "decoder_start_token_id": self.decoder_start_token_id,
        }
