"""Make the signatures of SavedModels for tasks that write texts."""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.export.signatures import serving_signatures
from keras_bertfam.models.decoder import DecoderBackbone
from keras_bertfam.models.families.transformer_xl import TransformerXLBackbone
from keras_bertfam.serving import Signature, most_tokens, positions_of, strings
from keras_bertfam.tasks.generation.causal_lm import CausalLM
from keras_bertfam.tasks.generation.prompts import (
    check_max_length,
    first_token_ids,
    prompt_start_ids,
    special_ids,
    stop_ids,
    words_as_ids,
)
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.tasks.generation.text_to_text import TextToText
from keras_bertfam.tasks.generation.writing import NO_TEXT, UNWRITTEN, write_rows
from keras_bertfam.tasks.recurrent.recurrent_lm import RecurrentLM
from keras_bertfam.tokenizers.pipeline_ops import tokenize, tokenize_with_masks
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Model


@serving_signatures.register(DecoderBackbone)
@serving_signatures.register(TransformerXLBackbone)
def _(
    model: Model,
    preprocessor: Any,
    max_input_tokens: int | None = None,
    **options: Any,
) -> dict[str, Signature]:
    usual = preprocessor.sequence_length
    most = most_tokens(max_input_tokens, usual, positions_of(model))
    start = prompt_start_ids(preprocessor)

    def encode(tokens):
        tokens, good = _with_known_ids(tokens[:, :most], model)
        batch = _as_batch(tokens)
        mask = batch["padding_mask"] & good[:, None]
        return {**model(batch, training=False), "padding_mask": mask}

    def texts(text):
        tokens = tokenize(preprocessor.tokenizer, to_utf8(text))
        return _between(start, tokens[:, : max(most - len(start), 0)])

    return _signatures(texts, encode, "A")


@serving_signatures.register(CausalLM)
@serving_signatures.register(RecurrentLM)
def _(
    model: Model,
    preprocessor: Any,
    max_length: int | None = None,
    max_input_tokens: int | None = None,
    **options: Any,
) -> dict[str, Signature]:
    positions = positions_of(model.backbone)
    usual = preprocessor.sequence_length
    new = model.generation.get("max_new_tokens") if max_length is None else None
    if new is not None:  # after each prompt
        usual = (max_input_tokens or usual) + new
    length = _text_length(max_length, usual, new or 1, positions, options["settings"])
    room = length - (new or 1)
    most = most_tokens(max_input_tokens, room, room)
    start = prompt_start_ids(preprocessor)
    write = _writer(model, length, new=new, left_out=start, **options)

    def go_on(tokens):
        # The last tokens are kept: the written text continues them.
        tokens, good = _with_known_ids(tokens[:, -most:], model.backbone)
        return write(tokens, {}, good)

    def prompts(text):
        tokens = tokenize(preprocessor.tokenizer, to_utf8(text))
        return _between(start, _last(tokens, most - len(start)))

    return _signatures(prompts, go_on, "A")


@serving_signatures.register
def _(
    model: TextToText,
    preprocessor: Any,
    max_length: int | None = None,
    max_input_tokens: int | None = None,
    **options: Any,
) -> dict[str, Signature]:
    positions = model.backbone.max_sequence_length
    first = first_token_ids(model)
    usual = preprocessor.layout.target_length
    length = _text_length(max_length, usual, len(first), positions, options["settings"])
    most = most_tokens(max_input_tokens, preprocessor.sequence_length, positions)
    tokenizer = preprocessor.tokenizer
    start, end = special_ids(tokenizer)
    write = _writer(model, length, first=len(first), left_out=start, **options)

    def answer(tokens):
        tokens, good = _with_known_ids(tokens[:, :most], model.backbone)
        begun = tf.tile(tf.constant([first], tf.int32), [tokens.nrows(), 1])
        inputs = {f"encoder_{name}": x for name, x in _as_batch(tokens).items()}
        return write(tf.RaggedTensor.from_tensor(begun), inputs, good)

    def sources(text):
        tokens = tokenize_with_masks(tokenizer, to_utf8(text))
        tokens = tokens[:, : max(most - len(start) - len(end), 0)]
        return _between(start, tokens, end)

    return _signatures(sources, answer, "A text to start with.")


def _as_batch(tokens):
    """Pad rows of tokens for a backbone."""
    ids = tokens.to_tensor()
    mask = tf.sequence_mask(tokens.row_lengths(), tf.shape(ids)[1])
    return {"token_ids": ids, "padding_mask": mask}


def _text_length(max_length, usual, begun, positions, settings):
    """Choose the length of texts that begin with `begun` tokens."""
    length = min(usual, positions or usual) if max_length is None else max_length
    most = positions or (settings or GenerationSettings()).max_tokens
    check_max_length(length, begun, most, positions is None)
    return length


def _last(tokens, count):
    """Keep the last tokens of rows, at most `count` of each."""
    return tokens[:, -count:] if count else tokens[:, :0]


def _between(start, tokens, end=()):
    """Put ids before and after the tokens of each row."""
    before, after = (
        tf.tile(tf.constant([ids], tf.int32), [tokens.nrows(), 1])
        for ids in ([*start], [*end])
    )
    return tf.concat([before, tokens, after], 1)


def _signatures(encode, answer, example):
    """Make the signatures of a function of rows of tokens: from text and from ids.

    Args:
        encode: function from strings to ragged rows of tokens.
        answer: function from these to the outputs.
        example: str.
    """

    def of_rows(token_ids, padding_mask):
        return answer(ragged.keep_in_matrix(token_ids, padding_mask))

    in_graph_of_its_own = tf.function(encode, autograph=False)
    row = in_graph_of_its_own(tf.constant([example])).to_tensor().numpy()
    return {
        "serving_default": Signature(
            lambda text: answer(encode(text)),
            {"text": strings("text")},
            {"text": [example]},
        ),
        "token_ids": Signature(
            of_rows,
            {
                "token_ids": tf.TensorSpec([None, None], tf.int32, name="token_ids"),
                "padding_mask": tf.TensorSpec(
                    [None, None], tf.bool, name="padding_mask"
                ),
            },
            {
                "token_ids": row,
                "padding_mask": np.ones(row.shape, bool),
            },
        ),
    }


def _with_known_ids(tokens, backbone):
    """Replace tokens that a backbone can't take by another one.

    Returns:
        A pair of ragged rows and of bools `(batch,)`. `False` marks a row without
        tokens or with unknown ids; it gets no answer.
    """
    lengths, size = tokens.row_lengths(), backbone.vocabulary_size
    known = (tokens.flat_values >= 0) & (tokens.flat_values < size)
    good = tf.reduce_all(tokens.with_flat_values(known), 1) & (lengths > 0)
    ids = tf.where(good[:, None], tf.pad(tokens.to_tensor(), [[0, 0], [0, 1]]), 0)
    lengths = tf.where(good, lengths, 1)
    return tf.RaggedTensor.from_tensor(ids, lengths=lengths), good


def _writer(
    model,
    length,
    sampler,
    stop_token_ids,
    settings=None,
    first=0,
    left_out=(),
    new=None,
    **options,
):
    """Make a function from the beginnings of texts and other inputs to the outputs.

    Args:
        model: the task.
        length: int, the most tokens of a text.
        sampler: `keras_hub.samplers.Sampler`.
        stop_token_ids: see `generate`, the same for all texts.
        settings: `GenerationSettings`, or `None` for the defaults.
        first: int, how many first tokens of each text are left out.
        left_out: ids that are left out of the strings.
        new: int or `None`, the most new tokens of a text.
    """
    settings = words_as_ids(model, settings or GenerationSettings())
    stop = stop_ids(model, stop_token_ids) or []
    tokenizer = model.preprocessor.tokenizer

    def write(begun, inputs, good):
        lengths = tf.cast(begun.row_lengths(), tf.int32)
        # Without rows, any length will do.
        shortest = tf.reduce_min(tf.concat([lengths, [length - 1]], 0))
        prompt = begun.to_tensor(UNWRITTEN, shape=[None, length])
        rows = {"prompt": prompt, "start": prompt[:, :shortest], "index": shortest}
        if stop:
            rows["stop"] = tf.constant([stop], tf.int32)
        limits = tf.fill(tf.shape(lengths), length)
        if new is not None:
            limits = rows["limits"] = tf.minimum(lengths + new, length)
        found = write_rows(model, {**inputs, **rows}, sampler, settings)
        written = found["token_ids"]  # (batch, texts, length)
        places = tf.range(length)
        after_prompt = places >= lengths[:, None, None]
        stops = tf.zeros_like(written, tf.bool)
        for token in stop:
            stops |= after_prompt & (written == token)
        after = tf.cumsum(tf.cast(stops, tf.int32), 2, exclusive=True) > 0
        kept = ~after & (written != UNWRITTEN) & good[:, None, None]
        kept &= places < limits[:, None, None]
        if "scores" in found:  # as in `generate`, the first text is always kept
            there = found["scores"] > NO_TEXT
            there |= tf.range(tf.shape(there)[1]) == 0
            kept &= there[..., None]
        written, stops, kept = (x[..., first:] for x in (written, stops, kept))
        # An embedding table may have more rows than there are tokens.
        said = kept & ~stops & (written < tokenizer.vocabulary_size())
        for token in left_out:
            said &= written != token
        count = settings.num_return_sequences
        of_texts = (tf.reshape(x, (-1, length - first)) for x in (written, said))
        texts = tokenizer.detokenize(ragged.keep_in_matrix(*of_texts))
        # A text may end in the middle of a character.
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
        outputs = {
            "text": tf.reshape(texts, (-1, count)),
            "token_ids": tf.where(kept, written, tokenizer.pad_token_id),
            "padding_mask": kept,
        }
        if settings.return_scores:
            outputs["scores"] = found["scores"]
        if count == 1:
            outputs = {name: x[:, 0] for name, x in outputs.items()}
        return outputs

    return write
