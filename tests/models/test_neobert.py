"""NeoBERT: its counts, and files of the release against arithmetic of its own."""

import json

import keras
import numpy as np
import pytest

from keras_bertfam import models, tasks
from keras_bertfam.presets import CheckpointError
from tests.compiled import compiled
from tests.tiny_families import backbone_of

numpy_files = pytest.importorskip("safetensors.numpy")

# Heads of 6, so that neither pairs nor halves are whole heads.
WIDTH, HEADS, LAYERS, INNER, SIZE = 12, 2, 2, 16, 30
CONFIG = {
    "model_type": "neobert",
    "architectures": ["NeoBERTLMHead"],
    "vocab_size": SIZE,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 24,  # 16 is two thirds of it
    "max_length": 12,
    "norm_eps": 1e-5,
    "embedding_init_range": 0.02,
    "decoder_init_range": 0.02,
    "pad_token_id": 0,
    "dim_head": 6,
    "classifier_init_range": 0.02,
    "auto_map": {"AutoModel": "model.NeoBERT"},
}
MASK = np.array([[1] * 7, [1] * 4 + [0] * 3], bool)
IDS = np.random.default_rng(0).integers(3, SIZE, MASK.shape).astype("int32")


def release(seed=0):
    """Tensors with the names and shapes of the release."""
    draw = np.random.default_rng(seed)

    def matrix(*shape):
        return draw.normal(0, 0.3, shape).astype("float32")

    tensors = {"model.encoder.weight": matrix(SIZE, WIDTH)}
    for layer in range(LAYERS):
        at = f"model.transformer_encoder.{layer}"
        tensors |= {
            f"{at}.qkv.weight": matrix(3 * WIDTH, WIDTH),
            f"{at}.wo.weight": matrix(WIDTH, WIDTH),
            f"{at}.ffn.w12.weight": matrix(2 * INNER, WIDTH),
            f"{at}.ffn.w3.weight": matrix(WIDTH, INNER),
            f"{at}.attention_norm.weight": 1 + matrix(WIDTH),
            f"{at}.ffn_norm.weight": 1 + matrix(WIDTH),
        }
    tensors["model.layer_norm.weight"] = 1 + matrix(WIDTH)
    tensors["decoder.weight"] = matrix(SIZE, WIDTH)
    tensors["decoder.bias"] = matrix(SIZE)
    return tensors


def write(folder, tensors, **changes):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    numpy_files.save_file(tensors, folder / "model.safetensors")
    return str(folder)


def read(folder):
    return numpy_files.load_file(folder / "model.safetensors")


def normed(x, weight):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight


def turned(x):
    """Multiply pairs of neighbours, as complex numbers, by powers of their angles."""
    length, size = x.shape[0], x.shape[-1]
    speeds = 10_000.0 ** (-np.arange(0, size, 2) / size)
    angles = np.exp(1j * np.outer(np.arange(length), speeds))[:, None]
    pairs = (x[..., ::2] + 1j * x[..., 1::2]) * angles
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)


def expected_states(tensors, ids, mask):
    """The states of one row after each block, and the last of all normed."""
    tensors = {name: array.astype("float64") for name, array in tensors.items()}
    x = tensors["model.encoder.weight"][ids]
    states = [x]
    for layer in range(LAYERS):
        own = f"model.transformer_encoder.{layer}."
        w = {n.removeprefix(own): a for n, a in tensors.items() if n.startswith(own)}
        heads = normed(x, w["attention_norm.weight"]) @ w["qkv.weight"].T
        query, key, value = np.split(heads.reshape(len(x), HEADS, -1), 3, axis=-1)
        query, key = turned(query), turned(key)
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(query.shape[-1])
        scores = np.where(mask, np.exp(scores - scores.max(-1, keepdims=True)), 0)
        scores = scores / scores.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", scores, value).reshape(x.shape)
        x = x + mixed @ w["wo.weight"].T
        gate, linear = np.split(
            normed(x, w["ffn_norm.weight"]) @ w["ffn.w12.weight"].T, 2, axis=-1
        )
        x = x + (gate / (1 + np.exp(-gate)) * linear) @ w["ffn.w3.weight"].T
        states.append(x)
    states[-1] = normed(x, tensors["model.layer_norm.weight"])
    return states


@pytest.mark.any_backend
def test_parameter_counts():
    cls, name = models.NeoBertBackbone, "neobert_base_en_uncased"
    arguments = cls.presets_table[name]
    assert arguments["intermediate_dim"] == 3072 * 2 // 3
    table = 30522 * 768
    # V H + L (4 H^2 + 3 I H + 2 H) + H, and an output table and its bias.
    encoder = table + 28 * (4 * 768**2 + 3 * 2048 * 768 + 2 * 768) + 768
    assert encoder == 221_665_536
    assert cls.parameter_count(**arguments) == encoder + table
    assert encoder + table + 30522 == 245_136_954


def test_states_and_logits_of_the_release(tmp_path):
    tensors = release()
    model = tasks.MaskedLM.from_preset(write(tmp_path / "theirs", tensors))
    assert isinstance(model.backbone, models.NeoBertBackbone)
    assert not model.backbone.tie_embeddings
    x = {"token_ids": IDS, "padding_mask": MASK}
    found = compiled(model.backbone)(x, return_hidden_states=True)["hidden_states"]
    logits = keras.ops.convert_to_numpy(compiled(model)(x))
    for row, mask in enumerate(MASK):
        states = expected_states(tensors, IDS[row], mask)
        for ours, theirs in zip(found, states, strict=True):
            ours = keras.ops.convert_to_numpy(ours)[row]
            np.testing.assert_allclose(ours[mask], theirs[mask], atol=1e-5)
        theirs = states[-1] @ tensors["decoder.weight"].T + tensors["decoder.bias"]
        np.testing.assert_allclose(logits[row][mask], theirs[mask], atol=1e-4)


@pytest.mark.any_backend
def test_files_come_out_as_they_went_in(tmp_path):
    tensors = release()
    model = tasks.MaskedLM.from_preset(write(tmp_path / "theirs", tensors))
    model.export_to_transformers(tmp_path / "ours")
    again = read(tmp_path / "ours")
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(again[name], tensor)
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert {n: x for n, x in CONFIG.items() if config.get(n) != x}.keys() == {
        "pad_token_id",  # the tokenizer's
        "dim_head",
        "classifier_init_range",
        "auto_map",
    }
    model.save_to_preset(str(tmp_path / "preset"))
    kept = tasks.MaskedLM.from_preset(str(tmp_path / "preset"))
    x = {"token_ids": IDS}
    first, second = (keras.ops.convert_to_numpy(m(x)) for m in (model, kept))
    np.testing.assert_array_equal(first, second)


@pytest.mark.any_backend
def test_backbones_and_classifiers_alone(tmp_path):
    """Without an output table logits are the input's, which is then written twice."""
    tensors = release()
    alone = {
        name.removeprefix("model."): tensor
        for name, tensor in tensors.items()
        if name.startswith("model.")
    }
    folder = write(tmp_path / "alone", alone, architectures=["NeoBERT"])
    backbone = models.Backbone.from_preset(folder)
    assert type(backbone) is models.NeoBertBackbone and backbone.tie_embeddings
    tasks.MaskedLM(backbone).export_to_transformers(tmp_path / "masked")
    written = read(tmp_path / "masked")
    assert written.keys() == tensors.keys()
    table = alone["encoder.weight"]
    np.testing.assert_array_equal(written["decoder.weight"], table)
    assert tasks.MaskedLM.from_preset(str(tmp_path / "masked")).backbone.tie_embeddings

    head = {
        "dense.weight": np.eye(WIDTH, dtype="float32"),
        "dense.bias": np.full(WIDTH, 0.5, "float32"),
        "classifier.weight": np.ones((3, WIDTH), "float32"),
        "classifier.bias": np.arange(3, dtype="float32"),
    }
    body = {n: x for n, x in tensors.items() if n.startswith("model.")}
    names = {"architectures": ["NeoBERTForSequenceClassification"], "num_labels": 3}
    folder = write(tmp_path / "labels", {**body, **head}, **names)
    model = tasks.TextClassifier.from_preset(folder)
    assert (model.num_classes, model.head_style) == (3, "roberta")
    first = expected_states(tensors, IDS[0], MASK[0])[-1][0]
    expected = np.tanh(first + 0.5).sum() + np.arange(3)
    logits = keras.ops.convert_to_numpy(model({"token_ids": IDS}))[0]
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    model.export_to_transformers(tmp_path / "again")
    assert read(tmp_path / "again").keys() == {*body, *head}


@pytest.mark.any_backend
@pytest.mark.parametrize("family", ["NeoBert", "EuroBert"])
def test_a_file_without_its_output_table(family, tmp_path):
    """Logits have a table of their own there, unless the config says otherwise."""
    folder = str(tmp_path)
    backbone = backbone_of(family, num_layers=1, tie_embeddings=False)
    tasks.MaskedLM(backbone).export_to_transformers(folder)
    tensors, output = read(tmp_path), backbone.record.transformers.output
    assert not tasks.MaskedLM.from_preset(folder).backbone.tie_embeddings
    config = json.loads((tmp_path / "config.json").read_text())
    del tensors[output]
    numpy_files.save_file(tensors, tmp_path / "model.safetensors")
    config.pop("tie_word_embeddings", None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=f"lacks '{output}', which"):
        tasks.MaskedLM.from_preset(folder)
    config["tie_word_embeddings"] = True
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert tasks.MaskedLM.from_preset(folder).backbone.tie_embeddings


@pytest.mark.slow
def test_an_output_table_that_no_head_reads_is_not_trained():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8}
    backbone = models.NeoBertBackbone(9, **sizes)
    table = backbone.token_embedding.reverse_embeddings
    ids = np.ones((2, 4), "int32")
    for task, reads in (
        (tasks.MaskedLM(backbone), True),
        (tasks.TextClassifier(backbone, num_classes=2), False),
    ):
        assert any(v is table for v in task.trainable_variables) == reads
        before = keras.ops.convert_to_numpy(table).copy()
        task.compile(optimizer=keras.optimizers.SGD(1.0))
        y = ids if reads else np.array([0, 1])
        task.fit({"token_ids": ids}, y, batch_size=2, verbose=0)
        moved = np.abs(keras.ops.convert_to_numpy(table) - before).max() > 0
        assert moved == reads


@pytest.mark.any_backend
def test_initial_values_are_uniform():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 64, "intermediate_dim": 64}
    backbone = models.NeoBertBackbone(500, **sizes)
    for variable in (backbone.token_embedding.embeddings, backbone.weights[2]):
        values = keras.ops.convert_to_numpy(variable)
        assert np.abs(values).max() == pytest.approx(0.02, rel=0.02)
        assert values.std() == pytest.approx(0.02 / np.sqrt(3), rel=0.05)
    with pytest.raises(ValueError, match="`initializer_range` must be a number"):
        models.NeoBertBackbone(9, **sizes, initializer_range=None)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"intermediate_size": 0}, "positive 'intermediate_size'. Received: 0"),
        ({"intermediate_size": "24"}, "positive 'intermediate_size'"),
        ({"intermediate_size": 3072}, "of at most 36. Received: 2048"),
        ({"num_attention_heads": 5}, "`hidden_dim` must be divisible"),
        ({"num_attention_heads": 4}, "`head_dim` must be even"),
        ({"decoder_init_range": 0.5}, "'decoder_init_range' to be .*, as under its"),
        ({"hidden_size": None}, "'hidden_size' to be an integer"),
    ],
)
def test_configs_of_no_model_here(change, message, tmp_path):
    folder = write(tmp_path, release(), **change)
    with pytest.raises(CheckpointError, match=message):
        tasks.MaskedLM.from_preset(folder)


@pytest.mark.any_backend
def test_no_model_of_the_release():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
    with pytest.raises(ValueError, match="multiple of 8. Received: .*12"):
        models.NeoBertBackbone(9, **sizes).export_to_transformers("nowhere")
    sizes["intermediate_dim"] = 16
    with pytest.raises(ValueError, match="rotary_base=.*5.0"):
        models.NeoBertBackbone(9, **sizes, rotary_base=5.0).export_to_transformers("no")
    teacher = tasks.MaskedLM(models.NeoBertBackbone(9, **sizes))
    with pytest.raises(ValueError, match="`copy_transform` must be `False`"):
        tasks.MaskedLM.from_teacher(teacher, [0], copy_transform=True)
