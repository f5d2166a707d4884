"""The layer that makes inputs and targets: rows, configs, seeds, what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import layers
from keras_bertfam.layers.corruption.span_objectives import (
    IidDrop,
    IidReplaceSpans,
)
from keras_bertfam.layers.corruption.text_objectives import BertStyle, Mass
from tests.layers.corruption.denoised_batches import END, make, random_texts


def test_decoders_get_the_targets_shifted():
    special = {"start_token_id": 6, "decoder_start_token_id": 2}
    out = make("text_infilling", **special)([[20, 21, 22], [20, 0, 0]], seed=[0, 1])
    assert out["target_ids"][:, :6].numpy().tolist() == [
        [6, 20, 21, 22, END, 0],
        [6, 20, END, 0, 0, 0],
    ]
    assert out["decoder_token_ids"][:, :6].numpy().tolist() == [
        [2, 6, 20, 21, 22, 0],
        [2, 6, 20, 0, 0, 0],
    ]
    weights = out["target_weights"].numpy()
    assert (weights == out["decoder_padding_mask"].numpy()).all()
    assert weights.sum(1).tolist() == [5, 3]
    assert out["encoder_token_ids"][:, 0].numpy().tolist() == [6, 6]


OBJECTIVES = sorted(layers.DenoisingObjective.named.keys() - {"mixture"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective", [*OBJECTIVES, layers.Mixture(["mass", "iid_drop"], [1, 2])]
)
def test_each_objective(objective):
    layer = make(objective)
    _, ids = random_texts(layer, 40)
    copy = keras.layers.deserialize(keras.layers.serialize(layer))
    assert copy.get_config() == layer.get_config()
    traced = tf.function(lambda x, seed: copy(x, seed=seed))
    first, again, other = (layer(ids, seed=[4, k]) for k in (1, 1, 2))
    graph = traced(ids, tf.constant([4, 1], tf.int64))
    differ = False
    for part, x in first.items():
        np.testing.assert_array_equal(x, again[part])
        np.testing.assert_array_equal(x, graph[part])
        differ |= (x.numpy() != other[part].numpy()).any()
    assert differ
    single = layer([20, 21, 22])
    assert single["encoder_token_ids"].shape == (32,)
    # Too short to be corrupted, or of no token at all, and no text.
    for few in (tf.constant([[20], [0]]), tf.zeros([2, 0], tf.int32)):
        out = layer(few, seed=[0, 1])
        assert out["target_ids"].shape == (2, layer.target_length)
    assert layer(tf.zeros([0, 8], tf.int32))["target_ids"].shape[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective",
    [*OBJECTIVES, layers.Mixture(["prefix_lm", "iid_drop", "text_infilling"])],
)
@pytest.mark.parametrize("specials", [0, 1, 2])
def test_no_text_is_longer_than_the_room_for_its_tokens(objective, specials):
    given = {"start_token_id": 6, "end_token_id": 1}
    given |= dict.fromkeys([*given][specials:])
    layer = make(objective, **given)
    assert layer.rooms.shape == (layer.text_length + 1, 2)
    assert (np.diff(layer.rooms, axis=0) >= 0).all()
    assert 0 <= layer.rooms[0, 0] < layer.rooms[-1, 0] <= 32 - specials
    lengths = np.repeat(np.arange(1, layer.text_length + 1), 60)
    texts = tf.RaggedTensor.from_row_lengths(
        tf.fill([lengths.sum()], tf.constant(20, tf.int32)), lengths
    )
    for seed in range(3):
        found = layer.sequences(texts, tf.constant([0, seed], tf.int64), tight=True)
        sizes = [found[n].row_lengths() for n in ("encoder_token_ids", "target_ids")]
        assert (np.stack(sizes, 1) - specials <= layer.rooms[lengths]).all()


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"`objective` must.*'bart'.*'mixture'.*'t5'"):
        make("t5")
    with pytest.raises(ValueError, match="`sentinel_ids` must be the ids.*: none"):
        make("random_spans", sentinel_ids=())
    with pytest.raises(ValueError, match="`sentinel_ids` must have at least 28.*: 20"):
        make("random_spans", 512)
    with pytest.raises(ValueError, match="`mask_token_id` must be.*'mass'.*None"):
        make("mass", mask_token_id=None)
    with pytest.raises(ValueError, match="`sentence_end_ids` must be.*none"):
        make("bart", sentence_end_ids=())
    with pytest.raises(ValueError, match="`target_length` must be at least 114.*100"):
        make("random_spans", 512, target_length=100, sentinel_ids=range(60))
    layer = make("random_spans", 512, target_length=128, sentinel_ids=range(60))
    assert layer.target_length == 128
    for cls in (
        layers.RandomSpans,
        IidReplaceSpans,
        IidDrop,
        layers.PrefixLM,
        BertStyle,
        Mass,
        layers.MassFragment,
        layers.TokenMasking,
        layers.TokenDeletion,
        layers.TextInfilling,
    ):
        for rate in (0, 1, -0.1, float("nan")):
            with pytest.raises(ValueError, match=f"`rate` must be .*{rate}"):
                cls(rate)
    with pytest.raises(ValueError, match="`mean_length` must be at least 1.*0.5"):
        layers.RandomSpans(mean_length=0.5)
    with pytest.raises(ValueError, match="`mean_length` must be from 0.1.*0"):
        layers.TextInfilling(mean_length=0)
    with pytest.raises(ValueError, match="`rates` must be 1 numbers"):
        layers.Mixture(["mass"], rates=[0.5, 0.5])
    with pytest.raises(ValueError, match="`mode_tokens` must have 1"):
        layers.Mixture(["mass"], mode_tokens=[])
    with pytest.raises(ValueError, match="`objectives` must not be empty"):
        layers.Mixture([])
    with pytest.raises(ValueError, match="`sequence_length` must be at least 5"):
        make("mass", 4)
    with pytest.raises(ValueError, match="`token_ids` must have the shape"):
        make("mass")(tf.zeros([1, 2, 3], tf.int32))
    with pytest.raises(ValueError, match=r"`sentinel_ids` must be in \[0, 120\).*120"):
        make("random_spans", sentinel_ids=[119, 120])


def test_an_objective_that_breaks_its_word():
    class Doubling(layers.DenoisingObjective):
        def corrupt(self, tokens, vocabulary, room, seed):
            return layers.Corrupted(tokens, tf.concat([tokens, tokens], 1))

    layer = make(Doubling(), 16)
    with pytest.raises(tf.errors.InvalidArgumentError, match="targets must fit"):
        layer([[*range(20, 34)]])


def test_texts_are_cut_to_what_fits():
    layer = make("mass", 8)
    out = layer([[*range(20, 40)]], seed=[0, 1])
    assert out["target_ids"].numpy().tolist() == [[*range(20, 27), END]]
