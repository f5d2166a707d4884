"""Each key of a config of `transformers` is read, has no meaning here, or is named."""

import json

import pytest

from keras_bertfam.presets.checkpoints import config_keys, huggingface
from tests.conformance.test_hf_round_trips import THERE

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
