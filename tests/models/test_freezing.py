"""Backbones of which a part isn't trained, and the base that loads any of them."""

import keras
import numpy as np
import pytest

from keras_bertfam import models
from keras_bertfam.models import AlbertBackbone, BertBackbone, XLNetBackbone
from keras_bertfam.tasks import TextClassifier

SIZES = dict(
    vocabulary_size=20, num_layers=4, num_heads=2, hidden_dim=8, intermediate_dim=8
)
IDS = np.random.default_rng(0).integers(1, 20, (4, 6)).astype("int32")


def trainable(backbone):
    """Which of embeddings, blocks and the rest are trained, by their paths."""
    found = set()
    pooler = {id(v) for v in backbone.pooler.weights} if backbone.pooler else set()
    for variable in backbone.trainable_variables:
        path = variable.path
        at = [n for n in range(4) if f"_{n}/" in path.partition("encoder/")[2]]
        found.add(at[0] if at else "pooler" if id(variable) in pooler else "embeddings")
    return found


@pytest.mark.parametrize("cls", [BertBackbone, XLNetBackbone])
def test_the_embeddings_and_the_lower_blocks(cls):
    backbone = cls(**SIZES)
    rest = {"pooler"} if cls is BertBackbone else set()
    assert trainable(backbone) == {"embeddings", 0, 1, 2, 3, *rest}
    count = len(backbone.weights)
    assert backbone.freeze(layers=0) is None
    assert trainable(backbone) == {0, 1, 2, 3, *rest}
    backbone.freeze(layers=3)
    assert trainable(backbone) == {3, *rest}
    backbone.freeze(layers=1)  # frees nothing
    assert trainable(backbone) == {3, *rest}
    backbone.freeze(4)
    assert trainable(backbone) == rest
    backbone.trainable = False
    backbone.trainable = True
    assert trainable(backbone) == {"embeddings", 0, 1, 2, 3, *rest}
    assert backbone.freeze() is None
    assert not backbone.trainable_variables and len(backbone.weights) == count
    assert backbone.get_config()["trainable"] is False
    again = cls.from_config(backbone.get_config())
    assert not again.trainable_variables


@pytest.mark.parametrize("layers", [-1, 5, 1.0, True, "3"])
def test_numbers_out_of_range(layers):
    expected = (
        r"`layers` must be `None` or an integer from 0 to num_layers=4\. Received"
    )
    with pytest.raises(ValueError, match=f"{expected}: layers={layers!r}\\.$"):
        BertBackbone(**SIZES).freeze(layers=layers)


@pytest.mark.parametrize(("groups", "fitting"), [(1, [0, 4]), (2, [0, 2, 4])])
def test_blocks_that_share_weights(groups, fitting):
    for layers in range(5):
        backbone = AlbertBackbone(**SIZES, num_groups=groups)
        if layers in fitting:
            backbone.freeze(layers)
            left = {v.path for v in backbone.trainable_variables}
            assert bool([p for p in left if "encoder" in p]) == (layers < 4)
            continue
        expected = rf"share weights.*one of \{fitting}. Received: layers={layers}\.$"
        with pytest.raises(ValueError, match=expected.replace("]", "\\]")):
            backbone.freeze(layers)
        assert len(backbone.trainable_variables) == len(backbone.weights) - sum(
            "seed" in v.path for v in backbone.weights
        )


def values(backbone):
    return {v.path: keras.ops.convert_to_numpy(v) for v in backbone.weights}


def changed(before, after):
    return {path for path in before if not np.array_equal(before[path], after[path])}


@pytest.mark.slow
def test_training_before_and_after_compiling():
    backbone = BertBackbone(**SIZES, dropout=0.0)
    task = TextClassifier(backbone, num_classes=2, preprocessor=None)
    labels = np.array([0, 1, 0, 1])

    def train():
        before = values(backbone)
        task.fit({"token_ids": IDS}, labels, batch_size=4, verbose=0)
        return changed(before, values(backbone))

    backbone.freeze(layers=2)
    frozen = {v.path for v in backbone.weights} - {
        v.path for v in backbone.trainable_variables
    }
    task.compile(optimizer=keras.optimizers.SGD(0.1))
    moved = train()
    assert moved and not moved & frozen
    backbone.freeze(layers=3)
    task.compile(optimizer=keras.optimizers.SGD(0.1))
    fewer = train()
    assert fewer and fewer < moved
    assert not [path for path in fewer if "_2/" in path.partition("encoder/")[2]]
    backbone.freeze()
    task.compile(optimizer=keras.optimizers.SGD(0.1))
    assert not train()


@pytest.mark.slow
@pytest.mark.parametrize("cls", [AlbertBackbone, BertBackbone, XLNetBackbone])
def test_the_base_picks_the_class(cls, tmp_path):
    backbone = cls(**SIZES)
    backbone.save_to_preset(str(tmp_path / "preset"))
    backbone.export_to_transformers(tmp_path / "transformers")
    for folder in ("preset", "transformers"):
        loaded = models.Backbone.from_preset(str(tmp_path / folder))
        assert type(loaded) is cls
        weights = (model.get_weights() for model in (loaded, backbone))
        assert len(loaded.weights) == len(backbone.weights)
        for one, other in zip(*weights, strict=True):
            if one.dtype == "float32":
                np.testing.assert_array_equal(one, other)


def test_the_base_knows_all_names():
    for name, cls in (
        ("xlnet_base_en_cased", XLNetBackbone),
        ("albert_base_en_uncased", AlbertBackbone),
    ):
        loaded = models.Backbone.from_preset(
            name, load_weights=False, num_layers=1, vocabulary_size=9
        )
        assert type(loaded) is cls
    assert issubclass(cls, models.Backbone)


def test_a_backbone_without_named_blocks():
    class Plain(models.Backbone):
        pass

    plain = Plain()
    with pytest.raises(ValueError, match="`layers` must be `None` for Plain.*layers=1"):
        plain.freeze(1)
    plain.freeze()
    assert not plain.trainable
