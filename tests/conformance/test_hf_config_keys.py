"""Each key of a config of `transformers` is read, has no meaning here, or is named."""

import json

import numpy as np
import pytest
from keras import ops

from keras_bertfam import models
from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints import config_keys, huggingface
from keras_bertfam.presets.families.parts.tables import REQUIRED
from tests.conformance.test_hf_round_trips import THERE
from tests.from_transformers import randomize

transformers = pytest.importorskip("transformers")


@pytest.mark.any_backend
@pytest.mark.parametrize("family", THERE)
def test_every_key_of_a_config_is_accounted_for(family, tmp_path):
    config = getattr(transformers, f"{THERE[family].title}Config")()
    config.save_pretrained(tmp_path)
    assert huggingface.open_source(tmp_path).notes == ()
    path = tmp_path / "config.json"
    known = {**json.loads(path.read_text()), **config.to_dict()}
    assert config_keys.unknown_keys(family, known) == {}
    path.write_text(json.dumps({**known, "odd_key": 3, "nothing": None}))
    (note,) = huggingface.open_source(tmp_path).notes
    assert note == "In the config, and not known here: odd_key='3'."


def test_no_key_has_two_reasons_to_mean_nothing():
    words = [w for words in config_keys.MEANINGLESS.values() for w in words.split()]
    assert len(words) == len({*words})


@pytest.mark.any_backend
@pytest.mark.parametrize("family", THERE)
def test_missing_keys_stand_for_what_they_do_there(family):
    table = THERE[family]
    usual = getattr(transformers, f"{table.title}Config")()
    for ours, key, default in table.config:
        # `None` stands for the value of another key.
        if default in (REQUIRED, None) or not hasattr(usual, key):
            continue
        assert default == getattr(usual, key), (ours, key)


SIZES = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 24}
SIZES |= {"num_hidden_layers": 3, "num_attention_heads": 2, "pad_token_id": 0}
SCALED = {"type": "linear", "factor": 4.0, "rope_theta": 1e4}
DECODER = "ModernBertDecoderModel"


@pytest.mark.parametrize(
    ("name", "sizes", "changes", "message"),
    [
        (DECODER, SIZES, {"sliding_window": 3}, None),
        ("ModernBertModel", SIZES, {"sliding_window": 3}, None),
        (DECODER, SIZES, {"sliding_window": 1}, "'sliding_window' to be an int of at"),
        ("EuroBertModel", SIZES, {"rope_parameters": SCALED}, "without scaling"),
        (
            "ModernBertModel",
            SIZES,
            {"rope_parameters": {"full_attention": SCALED}},
            "without scaling",
        ),
        (
            "T5Model",
            {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
            | {"feed_forward_proj": "gated-gelu", "vocab_size": 50},
            {"dense_act_fn": "silu"},
            "'dense_act_fn' to be 'gelu_new', as 'feed_forward_proj' says",
        ),
    ],
)
def test_keys_that_take_the_place_of_others(name, sizes, changes, message, tmp_path):
    torch = pytest.importorskip("torch")
    config = getattr(transformers, name.replace("Model", "Config"))(**sizes)
    randomize(getattr(transformers, name)(config), 0.3).save_pretrained(tmp_path)
    models.Backbone.from_preset(str(tmp_path))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    if message is not None:
        with pytest.raises(CheckpointError, match=message):
            models.Backbone.from_preset(str(tmp_path))
        return
    theirs = getattr(transformers, name).from_pretrained(tmp_path).eval()
    ids = np.random.default_rng(0).integers(3, 50, (2, 12))
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).last_hidden_state.numpy()
    ours = models.Backbone.from_preset(str(tmp_path))
    inputs = {"token_ids": ids.astype("int32"), "padding_mask": ids > 0}
    found = ops.convert_to_numpy(ours(inputs)["sequence_output"])
    np.testing.assert_allclose(found, expected, atol=1e-5)
