"""Masked and permuted language modelling, beside an implementation by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, tasks, tokenizers
from keras_bertfam.layers import BertTokenizer, MaskTokens
from keras_bertfam.layers.attention.masks import two_stream_mask
from tests.compiled import compiled
from tests.from_transformers import convert, max_difference, randomize

SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
LENGTH, COUNT, SIZE = 13, 4, 40
RNG = np.random.default_rng(0)
IDS = RNG.integers(4, SIZE - 1, (3, LENGTH)).astype("int32")
ORDERS = np.stack([RNG.permutation(LENGTH) for _ in IDS]).astype("int32")
MASKED = RNG.integers(4, SIZE, (3, COUNT)).astype("int32")
BATCH = {
    "token_ids": IDS,
    "mask_positions": ORDERS[:, -COUNT:],
    "masked_ids": MASKED,
    "mask_weights": np.ones((3, COUNT), "float32"),
}
LABELS = np.take_along_axis(IDS, BATCH["mask_positions"], axis=1)


def numpy(x):
    return keras.ops.convert_to_numpy(x)


def hidden_by_hand(length, count):
    """Which keys the content and the query stream don't see, as the original has it.

    The tokens are permuted, the last of them predicted; then come stand-ins.
    """
    first = length - count
    content = np.zeros((length + count, length + count), int)
    content[:first, first:length] = content[length:, first:length] = 1
    query = np.zeros((count, length + count), int)
    for t in range(count):
        content[first + t, first + t + 1 : length] = 1
        content[first + t, length : length + t + 1] = 1
        query[t, first + t : length] = 1
        query[t, length : length + t] = 1
    return content, query


@pytest.mark.any_backend
def test_masks():
    content, query = hidden_by_hand(4, 2)
    assert query.tolist() == [[0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 0]]
    assert content.tolist() == [
        [0, 0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1, 1],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0],
    ]
    filled = np.ones((1, 2), bool)
    seen = numpy(two_stream_mask(np.array([[2, 3]], "int32"), filled, 4))[0]
    assert (1 - seen[:6, :6]).tolist() == content.tolist()
    assert (1 - seen[6:, :6]).tolist() == query.tolist()
    assert not seen[:, 6:].any()
    # In another order the rows of tokens are others', and each sees 4 positions.
    seen = numpy(two_stream_mask(np.array([[3, 0]], "int32"), filled, 4))[0]
    order = [1, 2, 3, 0, 4, 5]
    assert (1 - seen[np.ix_(order, order)]).tolist() == content.tolist()
    assert seen.sum(1).tolist() == [4] * 8
    # A slot without a token stands for nothing.
    filled = np.array([[True, False]])
    seen = numpy(two_stream_mask(np.array([[2, 0]], "int32"), filled, 4))[0]
    assert not seen[:, 5:].any() and seen[:7].sum(1).tolist() == [4] * 7
    assert seen[0].tolist() == [1, 1, 0, 1, 1, 0, 0, 0]


def by_hand(theirs, ids, order, masked):
    """Logits of the tokens to predict, of MPNet of `transformers`, permuted."""
    import torch

    length, count = len(ids), len(masked)
    tail = order[-count:]
    tokens = torch.tensor(np.concatenate([ids[order], masked, masked])).long()
    places = torch.tensor(np.concatenate([order, tail, tail])).long()
    body = theirs.mpnet
    x = body.embeddings(tokens[None], position_ids=places[None] + 2)[0]
    hidden = [torch.tensor(m).bool() for m in hidden_by_hand(length, count)]
    table = body.encoder.relative_attention_bias.weight
    apart = places[None, : length + count] - places[:, None]
    bias = table[body.encoder.relative_position_bucket(apart)].permute(2, 0, 1)
    content, query = x[: length + count], x[length + count :]
    heads = theirs.config.num_attention_heads

    def block(layer, states, known, bias, hidden):
        attn = layer.attention.attn
        parts = attn.q(states), attn.k(known), attn.v(known)
        q, k, v = (p.reshape(len(p), heads, -1).transpose(0, 1) for p in parts)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + bias
        scores = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        mixed = attn.o((scores @ v).transpose(0, 1).reshape(len(states), -1))
        states = layer.attention.LayerNorm(mixed + states)
        return layer.output(layer.intermediate(states), states)

    for layer in body.encoder.layer:
        both = (content, bias[:, : length + count], hidden[0])
        rest = (query, bias[:, length + count :], hidden[1])
        content, query = (
            block(layer, states, content, *how) for states, *how in (both, rest)
        )
    return theirs.lm_head(query)


@pytest.mark.slow
def test_logits_and_loss_are_those_of_two_streams_by_hand():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.MPNetConfig(
        vocab_size=SIZE,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=LENGTH + 2,
        layer_norm_eps=1e-5,
    )
    theirs = randomize(transformers.MPNetForMaskedLM(config), 0.3)
    ours = convert(tasks.MaskedPermutedLM, theirs)
    with torch.no_grad():
        rows = zip(IDS, ORDERS, MASKED, strict=True)
        expected = torch.stack([by_hand(theirs, *row) for row in rows])
    logits = compiled(ours)(BATCH)
    assert max_difference(logits, expected) < 1e-4
    chances = torch.log_softmax(expected, -1).numpy()
    losses = -np.take_along_axis(chances, LABELS[..., None], axis=2)[..., 0]
    weights = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0]], "float32")
    # An empty slot says nothing to the others: what stands in it is nobody's.
    batch = {**BATCH, "mask_weights": weights}
    logits = numpy(ours(batch))
    other = {**batch, "masked_ids": np.where(weights > 0, MASKED, 5)}
    np.testing.assert_allclose(
        logits[weights > 0], numpy(ours(other))[weights > 0], atol=1e-5
    )
    np.testing.assert_allclose(logits[0], expected[0].numpy(), atol=1e-4)
    whole = ours.test_on_batch(BATCH, LABELS, BATCH["mask_weights"], return_dict=True)
    assert whole["loss"] == pytest.approx(losses.mean(), rel=1e-4)


@pytest.mark.any_backend
@pytest.mark.parametrize("family", ["MPNet", "Bert", "ModernBert"])
def test_each_prediction_knows_those_before_it(family):
    """Of any encoder: with a bias, with a table of positions, with rotations."""
    keras.utils.set_random_seed(1)
    local = {"attention_window": 0} if family == "ModernBert" else {}
    backbone = getattr(models, f"{family}Backbone")(
        SIZE, **SIZES, initializer_range=0.3, dropout=0.0, **local
    )
    model = tasks.MaskedPermutedLM(backbone)
    logits = numpy(model(BATCH))
    for slot in range(COUNT):
        ids = IDS.copy()
        rows, at = np.arange(3), BATCH["mask_positions"][:, slot]
        ids[rows, at] = (ids[rows, at] + 1) % (SIZE - 5) + 4
        moved = np.abs(numpy(model({**BATCH, "token_ids": ids})) - logits).max((0, 2))
        assert (moved[: slot + 1] < 1e-5).all() and (moved[slot + 1 :] > 1e-4).all()
    # The first query is what a masked language model predicts there.
    ids = IDS.copy()
    np.put_along_axis(ids, BATCH["mask_positions"], MASKED, axis=1)
    plain = {"token_ids": ids, "mask_positions": BATCH["mask_positions"]}
    found = numpy(model(plain))
    np.testing.assert_allclose(found[:, 0], logits[:, 0], atol=1e-5)
    assert np.abs(found[:, 1] - logits[:, 1]).max() > 1e-4


@pytest.mark.any_backend
def test_padding_and_sequences_of_a_row_are_not_seen():
    keras.utils.set_random_seed(1)
    backbone = models.MPNetBackbone(SIZE, **SIZES, initializer_range=0.3, dropout=0.0)
    model = tasks.MaskedPermutedLM(backbone)

    def batch(ids, positions, masked, **more):
        given = [np.array([x], "int32") for x in (ids, positions, masked)]
        names = ("token_ids", "mask_positions", "masked_ids")
        weights = np.ones((1, len(positions)), "float32")
        return {**dict(zip(names, given, strict=True)), "mask_weights": weights, **more}

    first = numpy(model(batch([0, 5, 6, 7, 2], [3, 1], [9, 39])))
    second = numpy(model(batch([0, 8, 9, 2], [2], [39])))
    mask = np.array([[1] * 5 + [0] * 3], bool)
    padded = batch([0, 5, 6, 7, 2, 1, 1, 1], [3, 1], [9, 39], padding_mask=mask)
    np.testing.assert_allclose(numpy(model(padded)), first, atol=1e-5)
    numbers = np.array([[1] * 5 + [2] * 4], "int32")
    ids = [0, 5, 6, 7, 2, 0, 8, 9, 2]
    both = batch(ids, [3, 7, 1], [9, 39, 39], sequence_ids=numbers)
    found = numpy(model(both))
    np.testing.assert_allclose(found[:, [0, 2]], first, atol=1e-5)
    np.testing.assert_allclose(found[:, 1:2], second, atol=1e-5)


@pytest.mark.any_backend
def test_backbones_that_it_has_not():
    for cls, settings in (
        (models.BertBackbone, {"causal": True}),
        (models.LongformerBackbone, {"attention_window": 4}),
        (models.DebertaV2Backbone, {}),
    ):
        with pytest.raises(ValueError, match="without windows, global tokens, dis"):
            tasks.MaskedPermutedLM(cls(SIZE, **SIZES, **settings))
    model = tasks.MaskedPermutedLM(models.MPNetBackbone(SIZE, **SIZES))
    lacking = {name: x for name, x in BATCH.items() if name != "mask_weights"}
    with pytest.raises(ValueError, match="must have `mask_positions` and `mask_wei"):
        model(lacking)


@pytest.mark.any_backend
def test_slots_in_random_order():
    """The same masks, and each of a row's selections is as often the first."""
    settings = {"vocabulary_size": SIZE, "mask_token_id": 3, "mask_selection_rate": 0.3}
    rows = np.tile(np.arange(4, 14, dtype="int32"), (3000, 1))
    rows[:, 8:] = np.where(np.arange(3000)[:, None] % 2, 0, rows[:, 8:])  # padding
    plain = MaskTokens(**settings)(rows, seed=[0, 1])
    mixed = MaskTokens(**settings, shuffle_slots=True)(rows, seed=[0, 1])
    np.testing.assert_array_equal(plain["token_ids"], mixed["token_ids"])
    np.testing.assert_array_equal(plain["mask_weights"], mixed["mask_weights"])
    weights = plain["mask_weights"].numpy() > 0
    places = mixed["mask_positions"].numpy()
    np.testing.assert_array_equal(
        np.sort(np.where(weights, places, 99)),
        np.where(weights, plain["mask_positions"], 99),
    )
    ids = mixed["mask_ids"].numpy()
    assert (ids[weights] == places[weights] + 4).all()
    ranks = np.argsort(np.argsort(np.where(weights, places, 99)))
    for full in (False, True):
        of_rows = ranks[(weights.sum(1) == 3) == full]
        number = 3 if full else 2
        counts = np.bincount(of_rows[:, 0], minlength=number)
        expected = len(of_rows) / number
        assert ((counts - expected) ** 2 / expected).sum() < 13.8  # 1e-3, 2 degrees


@pytest.mark.slow
@pytest.mark.any_backend
def test_texts_become_batches(tmp_path):
    documents = tf.data.Dataset.from_tensor_slices(["the cat sat on the mat"] * 40)
    tokenizer = tokenizers.train_word_piece(documents, 40, family="mpnet")
    preprocessor = tasks.MaskedPermutedLMPreprocessor(tokenizer, sequence_length=20)
    assert preprocessor.mask_special_tokens and not preprocessor.random_special_tokens
    batch = next(iter(preprocessor.dataset(documents, batch_size=4)))
    x, y, weights = batch
    assert x["masked_ids"].shape == y.shape == (4, 3)  # round(0.15 * 20)
    found = tf.gather(x["token_ids"], x["mask_positions"], batch_dims=1)
    np.testing.assert_array_equal(found, y)
    assert tokenizer.mask_token_id in x["masked_ids"].numpy()
    assert tokenizer.mask_token_id not in x["token_ids"].numpy()
    np.testing.assert_array_equal(x["mask_weights"], weights)
    # Called with texts; and fill_mask of a model that was saved.
    x, y, _ = preprocessor(["the cat sat"])
    assert x["masked_ids"].shape == y.shape
    backbone = models.MPNetBackbone(tokenizer.vocabulary_size(), **SIZES)
    model = tasks.MaskedPermutedLM(backbone, preprocessor)
    model.fit(preprocessor.dataset(documents, batch_size=4), epochs=1, verbose=0)
    model.save_to_preset(str(tmp_path / "ours"))
    again = tasks.MaskedPermutedLM.from_preset(str(tmp_path / "ours"))
    text = ["the <mask> sat"]
    assert again.fill_mask(text, top_k=2) == model.fill_mask(text, top_k=2)
    plain = tasks.MaskedLM.from_preset(str(tmp_path / "ours"))
    assert plain.fill_mask(text, top_k=2) == model.fill_mask(text, top_k=2)


@pytest.mark.any_backend
@pytest.mark.parametrize("strategy", ["words", "ngrams", "spans"])
def test_any_strategy(strategy):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s", *"abcdefgh"]
    preprocessor = tasks.MaskedPermutedLMPreprocessor(
        BertTokenizer(words), sequence_length=16, strategy=strategy
    )
    x, y, weights = preprocessor(["a b cs d e f gs h a b"])
    assert x["mask_positions"].shape == y.shape == weights.shape
    assert not {2, 3} & {*y.numpy()[weights.numpy() > 0].tolist()}
