import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import ElectraBackbone

COUNTS = {
    "electra_small_discriminator_uncased_en": 13_483_008,
    "electra_small_generator_uncased_en": 13_483_008,
    "electra_base_discriminator_uncased_en": 108_891_648,
    "electra_base_generator_uncased_en": 33_511_168,
    "electra_large_discriminator_uncased_en": 334_092_288,
    "electra_large_generator_uncased_en": 50_999_552,
}


def test_every_size_is_checked():
    assert set(ElectraBackbone.presets_table) == set(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts(name):
    sizes = ElectraBackbone.presets_table[name]
    assert ElectraBackbone.parameter_count(**sizes) == COUNTS[name]


def make(**kwargs):
    return ElectraBackbone(20, 1, 2, 16, 24, embedding_dim=8, **kwargs)


def call(backbone):
    inputs = {"token_ids": np.array([[1, 2, 3]]), "segment_ids": np.array([[0, 0, 1]])}
    return ops.convert_to_numpy(backbone(inputs)["sequence_output"])


@pytest.mark.parametrize(
    "parts", [["token_embedding"], ["token_embedding", "tables", "norm"]]
)
def test_a_backbone_with_shared_embeddings_is_saved_as_one_of_its_own(parts, tmp_path):
    other = make()
    shared = {name: getattr(other.embeddings, name) for name in parts}
    backbone = make(shared_embeddings=shared)
    assert backbone.count_params() == other.count_params()
    expected = call(backbone)
    backbone.save_to_preset(str(tmp_path))
    loaded = ElectraBackbone.from_preset(str(tmp_path))
    np.testing.assert_allclose(call(loaded), expected, atol=1e-6)
    other.embeddings.token_embedding.embeddings.assign(ops.zeros((20, 8)))
    assert np.abs(call(backbone) - expected).max() > 1e-3
    np.testing.assert_allclose(call(loaded), expected, atol=1e-6)


def test_unknown_shared_part():
    with pytest.raises(ValueError, match="token_embedding.*Received: .'positions'"):
        make(shared_embeddings={"positions": None})
