"""Autoencoders of texts: `MaskedAutoencoder` and `DenoisingAutoencoder`."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam import tasks, tokenizers
from keras_bertfam.analysis import prune_heads
from keras_bertfam.models import BertBackbone
from tests import every_task, tiny_families
from tests.every_task import TEXTS, preprocessor_of
from tests.tiny_masked_lm import SPECIALS, WORDS

IDS = np.array([[2, 9, 8, 7, 6, 5], [2, 4, 5, 6, 3, 0]], "int32")
ROWS = {"token_ids": np.where(IDS > 7, 1, IDS), "padding_mask": IDS != 0}
BOTH = ("MaskedAutoencoder", "DenoisingAutoencoder")
# Without relative positions only, which can't be causal.
REFUSED = ("Deberta", "DebertaV2", "EuroBert")
CAUSAL = [name for name in tiny_families.ENCODERS if name not in REFUSED]


def array(x):
    return ops.convert_to_numpy(x)


def task_of(name, family, **kwargs):
    return getattr(tasks, name)(tiny_families.backbone_of(family), **kwargs)


def crossentropies(logits, ids):
    logits = logits - logits.max(-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(logits, ids[..., None], -1)[..., 0]


# === MaskedAutoencoder ===


@pytest.mark.slow
@pytest.mark.parametrize("family", tiny_families.ENCODERS)
def test_a_token_is_predicted_from_its_context_and_place(family):
    model = task_of("MaskedAutoencoder", family)
    contexts = np.ones((2, 6, 6), bool)
    contexts[:, 2, 3] = False

    def states(**changed):
        inputs = {**ROWS, "target_ids": IDS, "contexts": contexts, **changed}
        return array(model(inputs)["reconstruction"])

    usual, other = states(), IDS.copy()
    other[:, 3] = 9
    changed = np.abs(states(target_ids=other) - usual).max(-1)
    assert changed[:, 2].max() < 1e-5
    assert changed[:, [1, 4]].min() > 1e-5
    # By the row's vector, and by its place, which DeBERTa's table isn't of.
    vector = np.where(np.arange(6) == 4, 9, ROWS["token_ids"])
    assert np.abs(states(token_ids=vector) - usual)[0].max(-1).min() > 1e-6
    contexts[:] = True
    assert np.abs(np.diff(states(), axis=1)).max(-1).min() > 1e-5
    table = model.decoder_positions
    own = family in ("Albert", "Electra", "ModernBert", "NeoBert", "EuroBert")
    assert table == (512 if own else None)


def test_the_loss_is_the_sum_of_two_means():
    model = every_task.make("MaskedAutoencoder", "bert")
    x, y, weights = every_task.rows_of("MaskedAutoencoder", model)
    ids, kept = y["reconstruction"], weights["reconstruction"]
    assert np.array_equal(ids, x["target_ids"])
    assert np.array_equal(kept == 0, np.isin(ids, [0, 2, 3]))  # [PAD], [CLS], [SEP]
    outputs = {name: array(value) for name, value in model(x).items()}
    expected = 0
    for name, logits in outputs.items():
        weight = weights[name]
        losses = crossentropies(logits.astype("float64"), y[name])
        expected += (losses * weight).sum() / weight.sum()
    model.compile(run_eagerly=True)
    found = model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize(
    "kind",
    [
        "bert",
        *(
            pytest.param(k, marks=pytest.mark.slow)
            for k in ("roberta", "albert", "xlnet")
        ),
    ],
)
def test_contexts_of_all_kinds_of_tokenizer(kind):
    preprocessor = preprocessor_of("MaskedAutoencoder", kind, sequence_length=32)
    documents = tf.data.Dataset.from_tensor_slices(TEXTS * 4)
    data = preprocessor.dataset(documents, 4, shuffle_buffer=0)
    (x, y, weights), *others = [*data.as_numpy_iterator()]
    assert x["contexts"].shape == (4, 32, 32)
    told = weights["reconstruction"] > 0
    places = np.arange(32)
    assert not x["contexts"][:, places, places][told].any()  # from itself
    assert x["contexts"][..., 0].all()  # where the vector stands
    share = [x["contexts"][k][:, told[k]].mean() for k in range(4)]
    assert 0.25 < np.mean(share) < 0.7
    assert np.array_equal(x["target_ids"], y["reconstruction"])
    masked = np.take_along_axis(x["target_ids"], x["mask_positions"], 1)
    there = weights["masked_lm"] > 0
    assert np.array_equal(masked[there], y["masked_lm"][there])
    # A pass has other contexts than the next one, and begins where it is told to.
    again = [*data.as_numpy_iterator()]
    assert not np.array_equal(again[0][0]["contexts"], x["contexts"])
    preprocessor.position.set(0)
    assert np.array_equal(next(data.as_numpy_iterator())[0]["contexts"], x["contexts"])
    assert len(others) == 2


def test_what_a_masked_autoencoder_refuses():
    backbone = tiny_families.backbone_of("Bert")
    model = tasks.MaskedAutoencoder(backbone, decoder_positions=5)
    contexts = np.ones((2, 6, 6), bool)
    with pytest.raises(ValueError, match="at most decoder_positions=5"):
        model({**ROWS, "target_ids": IDS, "contexts": contexts})
    with pytest.raises(ValueError, match="Received: no `contexts`"):
        model({**ROWS, "target_ids": IDS})
    for name in BOTH:
        data = tf.data.Dataset.from_tensor_slices(TEXTS)
        with pytest.raises(ValueError, match=r"`packing` must be one of \('doc'"):
            preprocessor_of(name, "bert").dataset(data, 2, packing="best_fit")
    with pytest.raises(ValueError, match="`sequence_ids` must be `False`"):
        preprocessor_of("MaskedAutoencoder", "bert", sequence_ids=True)
    with pytest.raises(ValueError, match="`hiding_rate`"):
        preprocessor_of("MaskedAutoencoder", "bert", hiding_rate=2.0)


# === DenoisingAutoencoder ===


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("family", CAUSAL)
def test_a_token_is_written_from_the_vector_and_those_before(family, pooling):
    model = task_of("DenoisingAutoencoder", family, pooling=pooling)
    # A bias by distance in one direction has other buckets than one in both.
    shared = [v for v in model.backbone.encoder.weights if "bias/table" not in v.path]
    assert {id(v) for v in shared} <= {id(v) for v in model.decoder.weights}

    def logits(**changed):
        inputs = {**ROWS, "target_ids": IDS, "target_padding_mask": IDS != 0}
        return array(model({**inputs, **changed}))

    usual, other = logits(), IDS.copy()
    other[:, 3] = 9
    changed = np.abs(logits(target_ids=other) - usual).max(-1)
    assert changed[:, :3].max() < 1e-5
    assert changed[0, 3:].min() > 1e-5
    vectors = np.where(np.arange(6) == 2, 9, ROWS["token_ids"])
    assert np.abs(logits(token_ids=vectors) - usual).max(-1).min() > 1e-6
    assert model(ROWS).shape == (2, 16)
    embedder = tasks.TextEmbedder(model.backbone, pooling=pooling, normalize=False)
    assert np.abs(array(embedder(ROWS)) - array(model(ROWS))).max() < 1e-5


@pytest.mark.slow
def test_rows_of_a_denoising_autoencoder():
    model = every_task.make("DenoisingAutoencoder", "bert")
    x, y, weights = every_task.rows_of("DenoisingAutoencoder", model)
    whole = np.asarray(model.preprocessor.encode(TEXTS, "max_length")["token_ids"])
    assert np.array_equal(x["target_ids"], whole[:, :-1])
    assert np.array_equal(y, whole[:, 1:])
    assert np.array_equal(weights, y != 0)
    assert np.array_equal(x["padding_mask"], x["token_ids"] != 0)
    assert (x["padding_mask"].sum(1) < (whole != 0).sum(1)).all()
    losses = crossentropies(array(model(x)).astype("float64"), y)
    model.compile(run_eagerly=True)
    found = model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
    expected = (losses * weights).sum() / weights.sum()
    assert found["loss"] == pytest.approx(expected, rel=1e-5)


def test_what_a_denoising_autoencoder_refuses():
    for family, settings, reason in (
        ("DebertaV2", {}, "no `disentangled`"),
        ("EuroBert", {}, "no `num_key_value_heads`"),
        ("Bert", {"convolution": 3}, "no `convolution`"),
        ("Bert", {"head_gates": {}}, "no `head_gates`"),
    ):
        backbone = tiny_families.backbone_of(family, **settings)
        if settings == {"head_gates": {}}:
            assert backbone.head_gates is not None
        with pytest.raises(ValueError, match=f"`backbone` must have {reason}"):
            tasks.DenoisingAutoencoder(backbone)
    with pytest.raises(ValueError, match="`pooling` must be"):
        task_of("DenoisingAutoencoder", "Bert", pooling="max")
    with pytest.raises(ValueError, match="`deletion_rate`"):
        preprocessor_of("DenoisingAutoencoder", "bert", deletion_rate=-1.0)
    with pytest.raises(ValueError, match="`tokenizer` must have a start token"):
        preprocessor_of("DenoisingAutoencoder", "t5")


@pytest.mark.slow
def test_heads_are_pruned_from_both_stacks():
    model = task_of("DenoisingAutoencoder", "Bert")
    inputs = {**ROWS, "target_ids": IDS}
    mask = np.array([[0.0, 1.0], [1.0, 0.0]], "float32")
    with model.backbone.encoder.masked_heads(mask):
        masked = array(model(inputs))
    assert np.abs(masked - array(model(inputs))).max() > 1e-3
    pruned = prune_heads(model, {0: [0], 1: [1]})
    assert np.abs(array(pruned(inputs)) - masked).max() < 1e-5


def test_a_sum_of_states_beyond_float16():
    backbone = tiny_families.backbone_of("Bert", dtype="mixed_float16")
    (gamma,) = (v for v in backbone.weights if v.path.endswith("ffn_1/norm/gamma"))
    gamma.assign(np.full(16, 15_000.0))
    (beta,) = (v for v in backbone.weights if v.path.endswith("ffn_1/norm/beta"))
    beta.assign(np.full(16, 20_000.0))
    found = array(tasks.DenoisingAutoencoder(backbone, pooling="mean")(ROWS))
    assert np.isfinite(found).all()
    assert 1e4 < found.mean() < 3e4


# === Both ===


@pytest.mark.parametrize("task", BOTH)
def test_backbones_whose_first_state_knows_too_little(task):
    for family, settings in (("Bert", {"causal": True}), ("XLNet", {}), ("T5", {})):
        backbone = tiny_families.backbone_of(family, **settings)
        with pytest.raises(ValueError, match="`backbone` must be an `EncoderBackbone`"):
            getattr(tasks, task)(backbone)


@pytest.mark.slow
@pytest.mark.parametrize("task", BOTH)
def test_both_learn_and_leave_an_encoder(task, tmp_path):
    model = every_task.make(task, "bert", backbone={"dropout": 0.0})
    model.compile(learning_rate=1e-2, total_steps=60)
    documents = tf.data.Dataset.from_tensor_slices(TEXTS * 16)
    data = model.preprocessor.dataset(documents, 8)
    losses = model.fit(data, epochs=10, verbose=0).history["loss"]
    assert losses[-1] < 0.6 * losses[0]
    model.save_to_preset(tmp_path / "preset")
    again = getattr(tasks, task).from_preset(str(tmp_path / "preset"))
    for ours, theirs in zip(model.weights, again.weights, strict=True):
        assert np.array_equal(array(ours), array(theirs)), ours.path
    embedder = tasks.TextEmbedder.from_preset(str(tmp_path / "preset"))
    assert isinstance(embedder.backbone, BertBackbone) and embedder.pooling == "cls"
    told = tasks.TextEmbedder.from_preset(str(tmp_path / "preset"), pooling="mean")
    assert told.pooling == "mean"
    with pytest.raises(ValueError, match="no place for .*decoder/"):
        model.export_to_transformers(tmp_path / "exported")


@pytest.mark.parametrize("strategy", ["tokens", "words", "ngrams"])
def test_hidden_words_are_whole_whatever_is_masked(strategy):
    words = tokenizers.BertTokenizer([*SPECIALS, *WORDS, "##s"], lowercase=True)
    preprocessor = tasks.MaskedAutoencoderPreprocessor(words, 32, strategy=strategy)
    table = preprocessor.parts()[1].contexts.starts_word
    assert table[words.token_to_id("cat")] and not table[words.token_to_id("##s")]
