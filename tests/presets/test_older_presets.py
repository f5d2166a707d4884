"""Presets that an earlier version wrote are read, with every weight in its place."""

import gzip
import json

import numpy as np
import pytest

from keras_bertfam import tasks
from keras_bertfam.transformer_config import FIELDS
from tests.marks import in_ci
from tests.presets.older_presets import WRITTEN, made_again, weights_of

PRESETS = json.loads(gzip.decompress(WRITTEN.read_bytes()))


@pytest.mark.parametrize("name", in_ci([*PRESETS], "masked_lm", "family-T5"))
def test_presets_of_an_earlier_version(name, tmp_path):
    values = made_again(PRESETS[name], tmp_path / "old")
    written = json.loads(PRESETS[name]["texts"]["task.json"])
    cls = getattr(tasks, written["class_name"])
    task = cls.from_preset(str(tmp_path / "old"))
    assert type(task) is cls
    task.save_to_preset(str(tmp_path / "new"))
    for file, expected in values.items():
        found = weights_of(tmp_path / "new" / file)
        assert found.keys() == expected.keys()
        for place, value in expected.items():
            np.testing.assert_array_equal(found[place], value, err_msg=place)
    again = json.loads((tmp_path / "new" / "task.json").read_text())
    assert again["registered_name"] == written["registered_name"]
    config, before = (
        saved["config"]["backbone"]["config"] for saved in (again, written)
    )
    added = {name: config.pop(name) for name in config.keys() - before.keys()}
    assert {**config, "name": before["name"]} == before
    # A newer version may add fields, whose defaults change nothing.
    assert added == {name: FIELDS[name].default for name in added}
