"""AutoGraph rewrites what users bring.

That it rewrites nothing of the library is checked in all tests, by `tests/conftest.py`.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import autograph
from keras_bertfam.layers import (
    DenoiseTokens,
    DenoisingObjective,
    MaskingStrategy,
    MaskTokens,
)
from keras_bertfam.layers.corruption.objectives import Corrupted
from keras_bertfam.tokenizers.pipeline_ops import tokenize

IDS = np.array([[2, 10, 11, 12, 13, 3], [2, 20, 21, 22, 23, 3]], "int32")


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_gpus_are_left_to_the_backend(backend, monkeypatch):
    asked = []
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *x: asked.append(x))
    autograph.leave_gpus()
    assert asked == ([] if backend == "tensorflow" else [([], "GPU")])

    def too_late(*arguments):
        raise RuntimeError("Visible devices cannot be modified after being initialized")

    monkeypatch.setattr(tf.config, "set_visible_devices", too_late)
    autograph.leave_gpus()


class Branching(MaskingStrategy):
    """Rows with token 20: all tokens from there; others: the first."""

    def units(self, token_ids, candidates, starts, span_ids):
        if tf.reduce_any(token_ids == 20):
            chosen = token_ids >= 20
        else:
            chosen = token_ids == 10
        return candidates & chosen, candidates & chosen


class Looping(MaskingStrategy):
    """Tokens of even ids, found one id after the other."""

    def units(self, token_ids, candidates, starts, span_ids):
        chosen = tf.zeros_like(candidates)
        number = tf.constant(0)
        while number <= tf.reduce_max(token_ids):
            chosen |= token_ids == number
            number += 2
        return candidates & chosen, candidates & chosen


@pytest.mark.parametrize(
    "strategy, expected",
    [(Branching(), [10, 20, 21, 22, 23]), (Looping(), [10, 12, 20, 22])],
)
def test_strategies_may_branch_and_loop_on_tensors(strategy, expected):
    layer = MaskTokens(
        30,
        mask_token_id=4,
        unselectable_token_ids=[2, 3],
        mask_selection_rate=1.0,
        strategy=strategy,
    )
    rows = tf.data.Dataset.from_tensor_slices(IDS).batch(1)
    masked = rows.map(lambda ids: layer(ids, seed=[0, 1]))
    found = [
        int(i)
        for batch in masked
        for i, weight in zip(
            batch["mask_ids"][0], batch["mask_weights"][0], strict=True
        )
        if weight
    ]
    assert found == expected


class FirstHalf(DenoisingObjective):
    """The first half of a text that begins with 10, else all of it; both ways."""

    def check(self, vocabulary, length):
        pass

    def lengths(self, inputs):
        return inputs, inputs

    def corrupt(self, tokens, vocabulary, room, seed):
        if tokens.flat_values[0] == 10:
            kept = tokens[:, : tokens.bounding_shape()[1] // 2]
        else:
            kept = tokens
        return Corrupted(kept, kept)


def test_objectives_may_branch_on_tensors():
    layer = DenoiseTokens(FirstHalf(), 8, vocabulary_size=30, end_token_id=1)
    texts = tf.data.Dataset.from_tensor_slices([[10, 11, 12, 13], [20, 21, 22, 23]])
    rows = texts.batch(1).map(lambda ids: layer(ids, seed=[0, 1]))
    short, whole = (batch["encoder_token_ids"].numpy()[0].tolist() for batch in rows)
    assert short[:3] == [10, 11, 1]
    assert whole[:5] == [20, 21, 22, 23, 1]


class Lengths(keras.layers.Layer):
    """A tokenizer of texts' lengths, cut off where they are long."""

    def tokenize(self, texts):
        ids = tf.strings.length(texts)
        if tf.reduce_max(ids) > 3:
            ids = tf.minimum(ids, 3)
        return tf.RaggedTensor.from_tensor(ids[:, None])


def test_tokenizers_may_branch_on_tensors():
    texts = tf.data.Dataset.from_tensor_slices(["a", "bcdef"]).batch(2)
    rows = texts.map(
        tf.autograph.experimental.do_not_convert(
            lambda batch: tokenize(Lengths(), batch)
        )
    )
    assert next(iter(rows)).to_list() == [[1], [3]]


def test_rewriting_is_noticed(rewritten_functions):
    def branch(x):
        if x > 0:
            x = -x
        return x

    assert [*tf.data.Dataset.range(2).map(branch).as_numpy_iterator()] == [0, -1]
    assert rewritten_functions == [branch]
