"""The layer that makes inputs and targets from texts, by a denoising objective."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_graph
from keras_bertfam.layers.corruption.noise_masks import as_rows
from keras_bertfam.layers.corruption.objectives import (
    DenoisingObjective,
    DenoisingVocabulary,
    LengthLimits,
    get_objective,
)
from keras_bertfam.layers.corruption.replacement import check_ids
from keras_bertfam.layers.data.base import (
    PreprocessingLayer,
    as_ids_like,
    as_token_ids,
)
from keras_bertfam.layers.data.pairs.text_to_text import PairLayout
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.layers.data.seeding import content_seed
from keras_bertfam.types import Config, TFRagged, TFTensor

_IDS = (
    "mask_token_id sentinel_ids special_token_ids sentence_end_ids named_token_ids "
    "start_token_id end_token_id decoder_start_token_id pad_token_id"
).split()
_LEAST = 4  # tokens of inputs, which every objective can do with
_ARGUMENTS = ("sequence_length", "target_length", "vocabulary_size", *_IDS, "seed")


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class DenoiseTokens(PreprocessingLayer):
    """Makes encoder inputs and decoder targets from texts, by a denoising objective.

    Use it inside `Dataset.map`, after batching. The same ids and seed always give the
    same noise: the layer uses no global generator. A text that is too short to be
    corrupted passes through.

    Args:
        objective: a `DenoisingObjective` such as `RandomSpans()`, its config, or its
            name. T5's names are `"random_spans"`, `"iid_replace_spans"`,
            `"iid_drop"`, `"prefix_lm"`, `"bert_style"`, `"deshuffling"` and `"mass"`;
            `"mass_fragment"` is MASS as published. BART's are `"token_masking"`,
            `"token_deletion"`, `"text_infilling"`, `"sentence_permutation"` and
            `"document_rotation"`. A list of BART's applies them one after the other;
            `"bart"` stands for the list that BART was trained with. `"mixture"` draws
            an objective for each text, see `Mixture`.
        sequence_length: int. The length of the inputs, special tokens included.
        target_length: int or `None`. The length of the targets, special tokens
            included. Defaults to what the objective needs.
        vocabulary_size: int. Number of token ids.
        mask_token_id: int or `None`. The id put in place of masked tokens.
        sentinel_ids: sequence of ints. The ids that stand for the first, second, ...
            span.
        special_token_ids: sequence of ints. Ids that are never drawn at random.
        sentence_end_ids: sequence of ints. Ids of tokens that end a sentence.
        named_token_ids: dict of str to int, or `None`. Ids of tokens that the objective
            asks for by name: the mode tokens of `Mixture`.
        start_token_id: int or `None`. The id that inputs and targets begin with.
        end_token_id: int or `None`. The id that inputs and targets end with.
        decoder_start_token_id: int. The first id of the decoder's inputs; the targets
            follow it, shifted to the right by one. Defaults to `0`.
        pad_token_id: int. Defaults to `0`.
        seed: int. Used in calls without a seed. Defaults to `0`.

    Call arguments:
        token_ids: integer tensor of shape `(batch, length)` or `(length,)`, without
            special tokens. A text is cut to the layer's `text_length` tokens.
        seed: integer tensor of shape `(2,)`, such as one of `seeded_passes`.
            Defaults to a hash of `token_ids` and the layer's own seed.
        padding_mask: bool tensor of the shape of `token_ids`, true up to a text's end.
            `None`: true for ids other than `pad_token_id`.

    Returns:
        A dict of `tf.Tensor`s, without the batch axis if there was none:
        `encoder_token_ids`, int32 `(batch, sequence_length)`; `decoder_token_ids` and
        `target_ids`, int32 `(batch, target_length)`; `target_weights`, float32 of
        that shape, 1 for a target and 0 for none; and `encoder_padding_mask` and
        `decoder_padding_mask`, bool.

    Raises:
        ValueError: If an argument is out of its range, the objective is unknown, or
            the vocabulary lacks what it needs.

    Example:

    ```python
    layer = keras_bertfam.layers.DenoiseTokens(
        "random_spans", 16, vocabulary_size=32100, end_token_id=1,
        sentinel_ids=range(32099, 31999, -1))
    layer([[27, 183, 8, 1782, 19, 3, 9, 794, 5]], seed=[0, 1])
    ```

    References:
        [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 3.3;
        [Lewis et al., 2019](https://arxiv.org/abs/1910.13461), section 2.2;
        [Song et al., 2019](https://arxiv.org/abs/1905.02450), section 3.2.
    """

    # Features of a row that the call takes besides `token_ids`.
    row_arguments = ("padding_mask",)

    def __init__(
        self,
        objective: DenoisingObjective | Config | str | Sequence[Any],
        sequence_length: int,
        target_length: int | None = None,
        *,
        vocabulary_size: int,
        mask_token_id: int | None = None,
        sentinel_ids: Sequence[int] = (),
        special_token_ids: Sequence[int] = (),
        sentence_end_ids: Sequence[int] = (),
        named_token_ids: Mapping[str, int] | None = None,
        start_token_id: int | None = None,
        end_token_id: int | None = None,
        decoder_start_token_id: int = 0,
        pad_token_id: int = 0,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.objective = get_objective(objective)
        self.vocabulary_size = vocabulary_size
        self.mask_token_id = mask_token_id
        self.sentinel_ids = [int(i) for i in sentinel_ids]
        self.special_token_ids = [int(i) for i in special_token_ids]
        self.sentence_end_ids = [int(i) for i in sentence_end_ids]
        self.named_token_ids = dict(named_token_ids or {})
        self.start_token_id = start_token_id
        self.end_token_id = end_token_id
        self.decoder_start_token_id = decoder_start_token_id
        self.pad_token_id = pad_token_id
        self.seed = seed
        ids = {name: getattr(self, name) for name in _IDS}
        ids["named_token_ids"] = [*self.named_token_ids.values()]
        check_ids(vocabulary_size, **ids)
        specials = sum(token is not None for token in (start_token_id, end_token_id))
        check_at_least(specials + _LEAST, sequence_length=sequence_length)
        inputs = sequence_length - specials
        self.text_length, targets = self.objective.lengths(inputs)
        needed = targets + specials
        if target_length is not None and target_length < needed:
            raise ValueError(
                f"`target_length` must be at least {needed}, which the objective "
                f"{self.objective.name!r} needs for sequence_length={sequence_length}. "
                f"Received: {target_length}."
            )
        self.sequence_length = sequence_length
        self.target_length = target_length or needed
        self.layout = PairLayout(
            sequence_length,
            self.target_length,
            start_token_id,
            end_token_id,
            decoder_start_token_id,
            pad_token_id,
        )
        self._room = LengthLimits(inputs, self.target_length - specials)
        self._vocabulary = DenoisingVocabulary(
            vocabulary_size,
            mask_token_id,
            tuple(self.sentinel_ids),
            tuple(self.special_token_ids),
            tuple(self.sentence_end_ids),
            self.named_token_ids,
        )
        self.objective.check(self._vocabulary, self.text_length)

    def call(
        self,
        token_ids: TFTensor,
        seed: TFTensor | None = None,
        padding_mask: TFTensor | None = None,
    ) -> dict[str, TFTensor]:
        ids = as_token_ids(token_ids)
        if ids.shape.rank not in (1, 2):
            raise ValueError(
                "`token_ids` must have the shape `(batch, length)` or `(length,)`. "
                f"Received: shape={ids.shape}."
            )
        if seed is None:
            seed = content_seed(ids, self.seed)
        seed = tf.ensure_shape(tf.cast(seed, tf.int64), [2])
        if padding_mask is None:
            inside = ids != self.pad_token_id
        else:
            mask = tf.cast(padding_mask, tf.int32)
            inside = as_ids_like(ids, padding_mask=mask)["padding_mask"] != 0
        single = ids.shape.rank == 1
        if single:
            ids, inside = ids[None], inside[None]
        tokens = _as_texts(ids[:, : self.text_length], inside[:, : self.text_length])
        out = self._rows(tokens, seed)
        return {name: x[0] for name, x in out.items()} if single else out

    @functools.cached_property
    def rooms(self) -> np.ndarray:
        """array: the most tokens of inputs and targets for each length of a text.

        An int32 array `(text_length + 1, 2)`: row `n` is for texts of `n` tokens.
        Special tokens don't count.
        """
        rooms = np.empty((self.text_length + 1, 2), np.int32)
        first = 0
        for inputs in range(_LEAST, self._room.inputs + 1):
            text, targets = self.objective.lengths(inputs)
            rooms[first : text + 1] = inputs, targets
            first = max(first, text + 1)
        return rooms

    def sequences(
        self, tokens: TFRagged, seed: TFTensor, tight: bool = False
    ) -> dict[str, TFRagged]:
        """Make inputs and targets from texts, without padding. Works in a graph.

        Args:
            tokens: ragged int32 tensor `(batch, None)`, without special tokens.
            seed: integer tensor of shape `(2,)`.
            tight: bool. Whether inputs and targets of a text are limited to what
                `rooms` says for its length, instead of a whole row. Defaults to
                `False`.

        Returns:
            A dict of ragged tensors; see `PairLayout.rows`.
        """
        tokens = tokens[:, : self.text_length].with_row_splits_dtype(tf.int64)
        room = None
        if tight:
            own = tf.gather(self.rooms, tokens.row_lengths())
            room = LengthLimits(own[:, 0], own[:, 1])
        return self._rows(tokens, seed, room, padded=False)

    def _rows(
        self,
        tokens: TFRagged,
        seed: TFTensor,
        room: LengthLimits | None = None,
        padded: bool = True,
    ) -> Any:
        room = room or self._room
        made = as_graph(self.objective.corrupt)(tokens, self._vocabulary, room, seed)
        return self.layout.rows(
            made.inputs,
            made.targets,
            made.predicted,
            self.mask_token_id,
            padded=padded,
        )

    def get_config(self) -> Config:
        config = super().get_config()
        config.update({name: getattr(self, name) for name in _ARGUMENTS})
        objective = keras.saving.serialize_keras_object(self.objective)
        return {**config, "objective": objective}


def _as_texts(ids, inside):
    """Remove the padding at the ends of rows, but keep padding ids inside a text.

    Args:
        ids: int32 tensor of shape `(batch, length)`.
        inside: bool tensor of that shape, false for padding.
    """
    rows, width = tf.unstack(tf.shape(ids))

    def whole():
        return tf.reshape(ids, [-1]), tf.fill([rows], width)

    def cut():
        places = tf.cast(inside, tf.int32) * tf.range(1, width + 1)
        lengths = tf.maximum(tf.reduce_max(places, 1), 0)
        return ragged.keep(ids, tf.sequence_mask(lengths, width)), lengths

    # Rows of a stream are full, and need no copy.
    return as_rows(*tf.cond(tf.reduce_all(inside[:, -1:]), whole, cut))
