"""T5's original checkpoints, those of Mesh TensorFlow."""

import os
import re
import warnings

import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import T5Backbone
from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints.mesh import GIN
from keras_bertfam.presets.checkpoints.tensorflow1 import open_source
from keras_bertfam.tasks import TextToText
from tests.from_transformers import randomize
from tests.huge_numbers import seconds
from tests.tensorflow1_files import save

pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = dict(vocab_size=20, d_model=10, d_kv=3, d_ff=14, num_heads=2)
SIZES |= dict(num_layers=2, num_decoder_layers=3, relative_attention_num_buckets=8)
NAMES = (
    (r"^shared\.weight$", "shared/embedding"),
    (r"\.layer\.(\d)\.", r"/layer_00\1/"),
    (r"\.block\.(\d)/", r"/block_00\1/"),
    (r"^lm_head\.weight", "decoder/logits/kernel"),
    (r"\.(wi|wi_0|wi_1|wo)\.weight", r"/\1/kernel"),
    (r"layer_norm\.weight", "layer_norm/scale"),
    (r"\.weight$", ""),
    (r"\.", "/"),
)
# What later code calls the same.
NAMED = (
    (r"layer_000/", "self_attention/"),
    (r"^(decoder/.*)layer_001/", r"\1enc_dec_attention/"),
    (r"layer_00[12]/", "dense_relu_dense/"),
    (r"(final_)?layer_norm/", "rms_norm/"),
)


def build(gated):
    more = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    config = transformers.T5Config(**SIZES, **(more if gated else {}))
    model = transformers.T5ForConditionalGeneration(config)
    if gated:  # `transformers` 5 makes them as tied
        model.lm_head.weight = torch.nn.Parameter(torch.randn(20, 10))
    return randomize(model, 0.1)


def variables_of(model, names=NAMES):
    """Variables as Mesh TensorFlow names them, of a model of `transformers`."""
    variables = {}
    tied = torch.equal(model.lm_head.weight, model.shared.weight)
    for name, tensor in model.state_dict().items():
        array = tensor.numpy()
        if "embed_tokens" in name or (tied and name == "lm_head.weight"):
            continue
        for pattern, replacement in names:
            name = re.sub(pattern, replacement, name)
        if array.ndim == 2 and name != "shared/embedding":
            array = array.T
        variables[name] = array
        variables[f"{name}_slot_v"] = array[:1]
    return variables


def saved(folder, variables, gin=None):
    save(folder, variables)
    (folder / "vocab.txt").unlink()
    if gin is not None:
        (folder / GIN).write_text(gin)
    return str(folder)


@pytest.fixture(scope="module")
def relu():
    return build(gated=False)


@pytest.mark.parametrize("kind", ["relu", "gated", "named"])
def test_logits(kind, relu, tmp_path):
    model = relu if kind == "relu" else build(gated=True)
    names = NAMES + NAMED if kind == "named" else NAMES
    gin = None
    if kind == "named":
        gin = "d_ff = 14\nencoder/DenseReluDense.activation = \\\n['gelu', 'linear']\n"
    path = saved(tmp_path, variables_of(model, names), gin)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        task = TextToText.from_preset(path)
    ids, mask = np.array([[5, 7, 9, 1, 0]]), np.array([[1, 1, 1, 1, 0]])
    with torch.no_grad():
        expected = model(
            input_ids=torch.tensor(ids),
            attention_mask=torch.tensor(mask),
            decoder_input_ids=torch.tensor(ids),
        ).logits.numpy()
    data = {"encoder_token_ids": ids, "encoder_padding_mask": mask}
    data |= {"decoder_token_ids": ids, "decoder_padding_mask": np.ones_like(mask)}
    got = ops.convert_to_numpy(task(data))
    np.testing.assert_allclose(got, expected, atol=1e-4)
    assert task.backbone.tie_embeddings == (kind == "relu")


@pytest.mark.any_backend
def test_sizes_and_activations(relu, tmp_path):
    variables = variables_of(relu)
    path = saved(tmp_path, variables)
    config = open_source(path).config
    assert {name: config[name] for name in SIZES} == SIZES
    for text, found in (
        ("decoder/DenseReluDense.activation = 'gelu'", "gelu_new"),
        ("DenseReluDense.activation = ['swish']", "silu"),
        ("# Nothing of it", "relu"),
    ):
        (tmp_path / GIN).write_text(text)
        assert open_source(path).config["feed_forward_proj"] == found
    for text, message in (
        ("DenseReluDense.activation = ['gelu', 'linear']", "without a gate.*'linear'"),
        (
            "DenseReluDense.activation = 'mish'",
            "activation, without.*: 'mish'",
        ),
        ("DenseReluDense.activation = [[]]", "Received: "),
        (
            "encoder/DenseReluDense.activation = 'relu'\n"
            "decoder/DenseReluDense.activation = 'gelu'",
            "Received: 'gelu', 'relu'",
        ),
        ("DenseReluDense.activation = __import__('os')", "can't be read"),
    ):
        (tmp_path / GIN).write_text(text)
        with pytest.raises(CheckpointError, match=message):
            open_source(path)


@pytest.mark.slow
@pytest.mark.any_backend
def test_what_is_missing_or_of_another_shape(relu, tmp_path):
    variables = variables_of(relu)
    at = "encoder/block_000/layer_000/SelfAttention"
    for number, (name, array) in enumerate(
        (
            (f"{at}/relative_attention_bias", None),
            (f"{at}/q", np.ones((10, 2, 3), "float32")),
            (f"{at}/relative_attention_bias", np.ones((0, 8), "float32")),
            ("decoder/block_001/layer_001/EncDecAttention/k", None),
        )
    ):
        changed = {**variables, name: array}
        changed = {name: x for name, x in changed.items() if x is not None}
        path = saved(tmp_path / str(number), changed)
        with pytest.raises(CheckpointError):
            T5Backbone.from_preset(path)


def test_gin_by_strangers(relu, tmp_path):
    saved(tmp_path, variables_of(relu))
    path, name = tmp_path / GIN, "DenseReluDense.activation = "
    for text in (
        *("[" * 5_000, "9" * 5_000, "-" * 100_000 + "1", "(" * 150 + "1" + ")" * 150),
        *("'x' * 10**9", "{**{}}", "b'\\xff'", "{1, 2}", "('relu',),", "open('x')"),
    ):
        path.write_text(name + text)
        with seconds(10), pytest.raises(CheckpointError, match=GIN):
            T5Backbone.from_preset(str(tmp_path))
    path.unlink()
    os.mkfifo(path)
    with seconds(10), pytest.raises(CheckpointError, match="is not a file"):
        T5Backbone.from_preset(str(tmp_path))
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(CheckpointError, match="link to another folder"):
        T5Backbone.from_preset(str(tmp_path))
