"""Replaced token detection whose tables share values, and not gradients."""

import keras
import numpy as np
import pytest

from keras_bertfam import models, tasks
from keras_bertfam.analysis import prune_heads
from keras_bertfam.layers import EncoderEmbedding
from keras_bertfam.layers.blocks.table_differences import (
    disentangled,
    merged_weights,
)
from tests import tiny_electra
from tests.tiny_families import ENCODERS, ROWS, backbone_of

SHARING = {"sharing": "gradient_disentangled"}


def numpy(x):
    return keras.ops.convert_to_numpy(x)


def tables(embeddings):
    layers = embeddings.token_embedding, embeddings.tables
    return [
        numpy(x)
        for x in (layers[0].embeddings, layers[1].position_table)
        if x is not None
    ]


def trained(**kwargs):
    """After a step of plain gradient descent."""
    model = tiny_electra.make_model(**SHARING, **kwargs)
    model.compile(optimizer=keras.optimizers.SGD(0.1), jit_compile=False)
    model.fit(tiny_electra.stream(model).take(1), verbose=0)
    return model


class OneWeight(keras.Model):
    """Tables of one number, and a loss of 0.5 of the generator's and 2 of the other."""

    def __init__(self, sharing):
        super().__init__()
        config = models.TransformerConfig(
            vocabulary_size=1, num_layers=1, num_heads=1, hidden_dim=1,
            intermediate_dim=1, num_segments=0, max_sequence_length=None,
            embedding_norm=False, dropout=0.0,
        )  # fmt: skip
        self.generator = EncoderEmbedding(config)
        shared = {"token_embedding": self.generator.token_embedding}
        shared = shared if sharing == "full" else None
        self.discriminator = EncoderEmbedding(config, shared=shared)
        for part in (self.generator, self.discriminator):
            part.build((None, None))
            part.token_embedding.embeddings.assign([[1.0]])
        self.differences = None
        if sharing == "gradient_disentangled":
            self.differences = disentangled(self.discriminator, self.generator, False)

    def call(self, x):
        return 0.5 * self.generator(x) + 2.0 * self.discriminator(x)

    def values(self):
        x = np.zeros((1, 1), "int32")
        return [
            float(numpy(part(x)).item())
            for part in (self.generator, self.discriminator)
        ]


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [
        ("gradient_disentangled", [0.95, 0.75]),
        ("full", [0.75, 0.75]),
        ("none", [0.95, 0.8]),
    ],
)
def test_a_step_of_one_weight(sharing, expected):
    model = OneWeight(sharing)
    model.compile(
        keras.optimizers.SGD(0.1), lambda y, y_pred: y_pred, jit_compile=False
    )
    assert model.values() == [1.0, 1.0]
    x = np.zeros((1, 1), "int32")
    model.fit(x, np.zeros((1, 1, 1)), verbose=0)
    np.testing.assert_allclose(model.values(), expected, atol=1e-6)
    if model.differences is not None:
        (difference,) = model.differences.weights
        np.testing.assert_allclose(numpy(difference), [[-0.2]], atol=1e-6)


@pytest.mark.slow
def test_a_step_and_what_is_saved(tmp_path):
    alone, model = trained(discriminator_weight=0.0), trained(discriminator_weight=5.0)
    for lone, base in zip(
        tables(alone.generator.embeddings),
        tables(model.generator.embeddings),
        strict=True,
    ):
        # No gradient of the discriminator's.
        np.testing.assert_allclose(base, lone, atol=1e-6)
    assert not any(np.any(numpy(v)) for v in alone.differences.weights)
    names = [v.name for v in model.differences.weights]
    assert names == ["token_table", "position_table", "segment_table"]
    found = tables(model.backbone.embeddings)
    for whole, base, part in zip(
        found,
        tables(model.generator.embeddings),
        model.differences.weights[:2],
        strict=True,
    ):
        assert np.abs(numpy(part)).max() > 1e-6
        np.testing.assert_allclose(whole, base + numpy(part), atol=1e-7)
    x = {"token_ids": np.array([[4, 5, 6]], "int32")}
    expected = numpy(model.backbone(x)["sequence_output"])
    copy = model.copy_discriminator()
    assert all(v.trainable for v in copy.weights)
    np.testing.assert_array_equal(numpy(copy(x)["sequence_output"]), expected)

    model.save_to_preset(str(tmp_path / "task"))
    again = tasks.ReplacedTokenDetection.from_preset(str(tmp_path / "task"))
    assert again.sharing == model.sharing
    for first, second in (
        (model.backbone, again.backbone),
        (model.generator, again.generator),
    ):
        for one, other in zip(
            merged_weights(first), merged_weights(second), strict=True
        ):
            np.testing.assert_array_equal(numpy(one), numpy(other))
    for one, other in zip(
        model.differences.weights, again.differences.weights, strict=True
    ):
        np.testing.assert_array_equal(numpy(one), numpy(other))
    whole = models.Backbone.from_preset(str(tmp_path / "task"))
    np.testing.assert_array_equal(numpy(whole(x)["sequence_output"]), expected)
    model.save_weights(str(tmp_path / "model.weights.h5"))
    other = tiny_electra.make_model(**SHARING, discriminator_weight=5.0)
    other.load_weights(str(tmp_path / "model.weights.h5"))
    np.testing.assert_array_equal(numpy(other.backbone(x)["sequence_output"]), expected)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", ENCODERS)
def test_on_any_family(family):
    model = tasks.ReplacedTokenDetection(
        backbone_of(family), generator_size=0.5, generator_depth=0.5, **SHARING
    )
    assert model.generator.num_layers == 1
    plain = model.copy_discriminator()(ROWS)["sequence_output"]
    states = model.backbone(ROWS)["sequence_output"]
    np.testing.assert_allclose(numpy(states), numpy(plain), atol=1e-6)
    config = model.get_config()
    assert config["sharing"] == SHARING["sharing"]


@pytest.mark.slow
@pytest.mark.any_backend
def test_what_is_tied_and_defaults():
    model = tiny_electra.make_model(tie="tokens", **SHARING)
    assert [v.name for v in model.differences.weights] == ["token_table"]
    assert tiny_electra.make_model().sharing == "full"
    model = tasks.ReplacedTokenDetection(backbone_of("DebertaV2"))
    found = model.sharing, model.generator_size, model.generator_depth
    assert found == (SHARING["sharing"], 1.0, 0.5)
    assert model.discriminator_weight == 10 and model.generator.num_layers == 1
    with pytest.raises(ValueError, match="`tie` must be"):
        tiny_electra.make_model(tie="none", **SHARING)
    with pytest.raises(ValueError, match="`sharing` must be one of"):
        tiny_electra.make_model(sharing="half")
    with pytest.raises(ValueError, match="depth must be in"):
        tiny_electra.make_model(generator_depth=0.0)
    for use in (
        lambda: model.backbone.quantize("int8"),
        lambda: prune_heads(model.backbone, {0: [1]}),
        lambda: models.DistilBertBackbone.from_teacher(model.backbone),
        lambda: tasks.ReplacedTokenDetection(model.backbone),
    ):
        with pytest.raises(ValueError, match="its own tables|whose tables are"):
            use()
