"""Our models beside functional ones of KerasHub, in one process."""

import keras
import keras_hub
import numpy as np
import pytest

from keras_bertfam.models import BertBackbone
from keras_bertfam.tasks import MaskedLM

SIZES = dict(
    vocabulary_size=12,
    num_layers=1,
    num_heads=2,
    hidden_dim=8,
    intermediate_dim=16,
    max_sequence_length=8,
)


@pytest.mark.slow
def test_models_of_keras_hub_leave_ours_as_they_are(tmp_path):
    before = BertBackbone(**SIZES)
    theirs = keras_hub.models.BertMaskedLM(keras_hub.models.BertBackbone(**SIZES))
    assert isinstance(theirs, keras.Function)  # what changes the bases that we share
    assert not issubclass(BertBackbone, keras.Function)
    assert not issubclass(MaskedLM, keras.Function)
    task = MaskedLM(BertBackbone(**SIZES))
    x = {"token_ids": np.array([[1, 2, 3]]), "mask_positions": np.array([[1]])}
    task.fit(x, np.array([[4]]), verbose=0)
    task.save_to_preset(str(tmp_path))
    loaded = MaskedLM.from_preset(str(tmp_path))
    assert isinstance(loaded.backbone, keras_hub.models.Backbone)
    np.testing.assert_array_equal(
        *(keras.ops.convert_to_numpy(model(x)) for model in (task, loaded))
    )
    assert "pooled_output" in before({"token_ids": x["token_ids"]})
    ids = np.ones((1, 3), "int32")
    inputs = {name: ids for name in ("token_ids", "segment_ids", "padding_mask")}
    theirs({**inputs, "mask_positions": ids})
