"""ELMo: AllenNLP's states, counts, padding, states that go on, saving."""

import json

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam import models, presets
from keras_bertfam.models import ElmoBackbone
from keras_bertfam.presets import CheckpointError
from keras_bertfam.tokenizers import ElmoTokenizer
from tests.tiny_bidirectional_lm import SIZES, make_backbone

PUBLISHED = {
    "elmo_small_en": 13_593_296,
    "elmo_medium_en": 28_027_728,
    "elmo_original_en": 93_600_848,
    "elmo_original_5.5b_en": 93_600_848,
}


@pytest.mark.any_backend
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_counts(name):
    arguments = ElmoBackbone.presets_table[name]
    assert ElmoBackbone.parameter_count(**arguments) == PUBLISHED[name]
    assert name in presets.list_presets(ElmoBackbone)


def numpy_of(outputs):
    return [ops.convert_to_numpy(x) for x in outputs]


def inputs_of(sentences, length=None):
    """Rows of sentences that are tokenised, between their two tokens."""
    tokenizer = ElmoTokenizer(split="spaces")
    words = tokenizer.split_words([f"<S> {text} </S>" for text in sentences])
    words = words.to_tensor("", shape=[None, length])
    mask = (words != "").numpy()
    return {"character_ids": tokenizer.characters(words).numpy(), "padding_mask": mask}


@pytest.mark.slow
@pytest.mark.data
def test_states_of_allennlp(data_dir):
    folder = data_dir / "fixtures/elmo/elmo"
    files = folder / "options.json", folder / "lm_weights.hdf5"
    backbone = ElmoBackbone.from_allennlp(*files)
    sentences = json.loads((folder / "sentences.json").read_text())
    expected = [h5py.File(folder / f"lm_embeddings_{k}.hdf5") for k in range(3)]
    states = [np.zeros((3, n), "float32") for n in backbone.lstm.state_widths]
    # Each batch goes on with the states of the one before. PyTorch is slow at it.
    for number in range(2 if keras.backend.backend() == "torch" else 10):
        texts = [rows[number] for rows in sentences]
        x = {**inputs_of(texts, 64), "states": states}
        outputs = backbone(x, return_hidden_states=True, return_states=True)
        states = outputs["states"]
        top = ops.convert_to_numpy(outputs["hidden_states"][2])
        for k, text in enumerate(texts):
            length = len(text.split())
            target = np.concatenate(expected[k][str(number)][...], axis=-1)
            assert np.abs(top[k, 1 : length + 1] - target).max() < 1e-5
            assert not top[k, length + 2 :].any()
    words = (folder / "vocab_test.txt").read_text().strip().split("\n")
    table = h5py.File(folder / "elmo_token_embeddings.hdf5")["embedding"][...]
    tokenizer = ElmoTokenizer()
    vectors = backbone.characters(tokenizer.characters(tf.constant([words])).numpy())
    assert np.abs(ops.convert_to_numpy(vectors)[0] - table).max() < 1e-5


def test_padding_and_states():
    backbone = make_backbone()
    character_ids = np.random.default_rng(0).integers(1, 262, (2, 6, 8))
    mask = np.arange(6) < np.array([[6], [4]])
    x = {"character_ids": character_ids * mask[..., None], "padding_mask": mask}
    padded = backbone(x, return_hidden_states=True, return_states=True)
    short = {"character_ids": character_ids[1:, :4]}
    alone = backbone(short, return_hidden_states=True, return_states=True)
    pairs = zip(padded["hidden_states"], alone["hidden_states"], strict=True)
    for one, other in (numpy_of(pair) for pair in pairs):
        np.testing.assert_allclose(one[1, :4], other[0], atol=1e-6)
        assert not one[1, 4:].any() and one.shape == (2, 6, 16)
    for one, other in zip(padded["states"], alone["states"], strict=True):
        one, other = numpy_of((one, other))
        np.testing.assert_allclose(one[1:], other, atol=1e-6)
    # Forward, two halves in a row are the whole.
    first, second = (backbone.characters(character_ids[:, i : i + 3]) for i in (0, 3))
    whole, _ = backbone.lstm.run(backbone.characters(character_ids), "forward")
    _, states = backbone.lstm.run(first, "forward")
    rest, _ = backbone.lstm.run(second, "forward", states=states)
    np.testing.assert_allclose(
        *(ops.convert_to_numpy(x) for x in (whole[-1][:, 3:], rest[-1])), atol=1e-6
    )
    places = backbone(x, positions=np.array([[1], [3]]))["sequence_output"]
    full = ops.convert_to_numpy(padded["sequence_output"])
    expected = full[np.arange(2), [1, 3]]
    np.testing.assert_allclose(ops.convert_to_numpy(places)[:, 0], expected, atol=1e-6)


def test_clipping_and_residual_against_numpy():
    clip = {"cell_clip": 0.05, "projection_clip": 0.02}
    backbone = make_backbone(num_layers=2, **clip)
    x = np.random.default_rng(1).normal(size=(1, 5, 8)).astype("float32")
    layers, _ = backbone.lstm.run(ops.convert_to_tensor(x), "backward")
    seen = []
    rows = x[0]
    for number, layer in enumerate(backbone.lstm.backward_layers):
        kernel, bias = numpy_of((layer.kernel, layer.bias))
        cell = layer.recurrence.cell
        recurrent, projection = numpy_of((cell.recurrent_kernel, cell.projection))
        h, c = np.zeros(8), np.zeros(24)
        out = np.zeros_like(rows)
        for t in reversed(range(5)):
            i, j, f, o = np.split(rows[t] @ kernel + bias + h @ recurrent, 4)
            i, f, o = (1 / (1 + np.exp(-g)) for g in (i, f + 1, o))
            c = np.clip(f * c + i * np.tanh(j), -0.05, 0.05)
            h = np.clip((o * np.tanh(c)) @ projection, -0.02, 0.02)
            out[t] = h
        rows = out + rows if number else out
        seen.append(rows)
    for ours, theirs in zip(layers, seen, strict=True):
        assert np.abs(ops.convert_to_numpy(ours)[0] - theirs).max() < 1e-6


@pytest.mark.slow
def test_saving(tmp_path):
    backbone = make_backbone()
    backbone.save_to_preset(tmp_path / "elmo")
    x = inputs_of(["a cat sat"])
    x["character_ids"] = x["character_ids"][..., :8]
    again = models.Backbone.from_preset(str(tmp_path / "elmo"))
    assert again.get_config() == backbone.get_config()
    one, other = numpy_of(b(x)["sequence_output"] for b in (backbone, again))
    np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.any_backend
def test_errors(tmp_path):
    backbone = make_backbone()
    with pytest.raises(ValueError, match="`hidden_dim` must be even.*15"):
        make_backbone(hidden_dim=15)
    with pytest.raises(ValueError, match=r"for max_characters=8. Received.*\(1, 2, 50"):
        backbone({"character_ids": np.ones((1, 2, 50), "int32")})
    with pytest.raises(ValueError, match="must be from 0 to 261. Received.* to 262"):
        backbone({"character_ids": np.full((1, 2, 8), 262)})
    options = {
        "lstm": {"cell_clip": 3, "use_skip_connections": True, "n_layers": 2}
        | {"proj_clip": 3, "projection_dim": 8, "dim": 24},
        "char_cnn": {"embedding": {"dim": 4}, "filters": SIZES["filters"]}
        | {"n_highway": 1, "n_characters": 262, "max_characters_per_token": 8}
        | {"activation": "relu"},
    }
    path, weights = tmp_path / "options.json", tmp_path / "weights.hdf5"
    path.write_text(json.dumps(options))
    weights.write_bytes(b"no HDF5")
    with pytest.raises(
        CheckpointError, match="weights.hdf5' can't be read; it is trunc"
    ):
        ElmoBackbone.from_allennlp(path, weights)
    with h5py.File(weights, "w") as file:
        file["char_embed"] = np.zeros((261, 5), "float32")
    with pytest.raises(
        CheckpointError, match=r"'char_embed' of.*\(261, 4\).*\(261, 5\)"
    ):
        ElmoBackbone.from_allennlp(path, weights)
    with h5py.File(weights, "w") as file:
        file["char_embed"] = np.zeros((261, 4), "float32")
    with pytest.raises(CheckpointError, match="the weight 'CNN/W_cnn_0'.*none"):
        ElmoBackbone.from_allennlp(path, weights)
    options["char_cnn"]["activation"] = "tanh"
    path.write_text(json.dumps(options))
    with pytest.raises(CheckpointError, match="activation='relu'.* Received: 'tanh'"):
        ElmoBackbone.from_allennlp(path, weights)
    del options["lstm"]["dim"]
    options["char_cnn"]["activation"] = "relu"
    path.write_text(json.dumps(options))
    with pytest.raises(CheckpointError, match="must have the option 'lstm.dim'"):
        ElmoBackbone.from_allennlp(path, weights)
