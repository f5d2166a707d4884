import h5py
import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import ElectraBackbone
from keras_bertfam.tasks import ReplacedTokenDetection
from tests import tiny_electra as tiny


def same_outputs(model, other):
    """Compare two models by what sampling has no part in, and the loss."""
    x = tiny.batch()
    others = other(x)
    for name, value in model(x).items():
        np.testing.assert_allclose(
            ops.convert_to_numpy(others[name]), ops.convert_to_numpy(value), atol=1e-5
        )


@pytest.mark.slow
@pytest.mark.parametrize("tie", ["embeddings", "tokens", "none", "all"])
def test_round_trips(tie, tmp_path):
    size = 1 if tie == "all" else 0.5
    model = tiny.make_model(tie=tie, generator_size=size, temperature=1e-6)
    model.save(tmp_path / "model.keras")
    model.save_to_preset(str(tmp_path / "preset"))
    model.generator.save_to_preset(str(tmp_path / "generator"))
    others = [
        keras.saving.load_model(tmp_path / "model.keras"),
        ReplacedTokenDetection.from_preset(str(tmp_path / "preset")),
    ]
    for other in others:
        assert other.count_params() == model.count_params()
        same_outputs(model, other)
        assert other.get_config()["tie"] == tie
    # The tie is alive in what was loaded.
    for other in others:
        tied = other.generator.token_embedding is other.backbone.token_embedding
        assert tied == (tie != "none")
    x = {"token_ids": tiny.batch()["token_ids"]}
    for folder, backbone in (
        ("preset", model.discriminator),
        ("generator", model.generator),
    ):
        loaded = ElectraBackbone.from_preset(str(tmp_path / folder))
        np.testing.assert_allclose(
            ops.convert_to_numpy(loaded(x)["sequence_output"]),
            ops.convert_to_numpy(backbone(x)["sequence_output"]),
            atol=1e-5,
        )


def test_a_given_generator_has_a_size_of_its_own():
    generator = tiny.make_backbone(hidden_dim=6)
    model = tiny.make_model(generator=generator, tie="none")
    config = {**model.get_config(), "preprocessor": None}
    sizes = {"generator_size": 0.5, "generator_depth": 1.0}
    assert config.keys() >= sizes.keys() and not any(map(config.get, sizes))
    older = {**config, **sizes}  # as files said that had no effect
    assert ReplacedTokenDetection.from_config(older).generator.hidden_dim == 6
    for name, size in sizes.items():
        with pytest.raises(ValueError, match=f"`{name}` must be `None` .*: {size}"):
            tiny.make_model(generator=generator, tie="none", **{name: size})


@pytest.mark.slow
def test_a_given_generator_is_saved_with_the_task(tmp_path):
    generator = tiny.make_backbone(hidden_dim=6, num_layers=2)
    model = tiny.make_model(generator=generator, tie="none", temperature=1e-6)
    model.save(tmp_path / "model.keras")
    model.save_to_preset(str(tmp_path / "preset"))
    same_outputs(model, keras.saving.load_model(tmp_path / "model.keras"))
    same_outputs(model, ReplacedTokenDetection.from_preset(str(tmp_path / "preset")))


def saved_size(model, path):
    model.save_weights(path)
    sizes = []
    with h5py.File(path) as file:
        file.visititems(lambda _, item: sizes.append(getattr(item, "size", 0)))
    return sum(sizes)


def test_shared_weights_are_saved_once(tmp_path):
    tied, untied = tiny.make_model(), tiny.make_model(tie="none")
    path = tmp_path / "model.weights.h5"
    difference = untied.count_params() - tied.count_params()
    assert difference == 21 * 8 + 16 * 8 + 2 * 8 + 2 * 8
    assert saved_size(untied, path) - saved_size(tied, path) == difference
