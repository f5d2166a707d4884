import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import BertBackbone, ElectraBackbone
from keras_bertfam.tasks import MaskedLM, ReplacedTokenDetection
from keras_bertfam.tasks.masking.replaced_token_detection import VARIANTS
from tests import tiny_electra as tiny


@pytest.mark.slow
@pytest.mark.any_backend
def test_any_trunk_with_a_pooler(tmp_path):
    backbone = BertBackbone(21, 1, 2, 16, 24, max_sequence_length=16)
    model = tiny.make_model(backbone, generator_size=0.3)
    assert model.generator.hidden_dim == 5 and model.generator.pooler is None
    before = ops.convert_to_numpy(backbone.pooler.weights[0])
    model.fit(tiny.batch(), batch_size=8, verbose=0)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(backbone.pooler.weights[0]), before
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        "electra",
        *(
            pytest.param(
                v, marks=[pytest.mark.slow("release"), pytest.mark.any_backend]
            )
            for v in VARIANTS
            if v != "electra"
        ),
    ],
)
def test_fit_reports_and_learns(variant):
    model = tiny.make_model(variant=variant)
    rows = tiny.rows()
    if variant == "electra":  # once as users do it
        data = tiny.stream(model)
        held_out = tiny.stream(model, training=False)
        history = model.fit(data, validation_data=held_out, verbose=0).history
        assert {"discriminator_auc", "val_discriminator_auc"} <= set(history)
        tiny.compiled(model)  # a new schedule
    settings = {"batch_size": 12, "verbose": 0}
    history = model.fit(rows, epochs=8, **settings).history
    evaluation = model.evaluate(rows, return_dict=True, **settings)
    names = {"generator_accuracy", "generator_perplexity", "discriminator_accuracy"}
    if variant.startswith("electra"):
        names |= {f"discriminator_{n}" for n in ("loss", "precision", "recall", "auc")}
    assert names <= set(history) and names <= set(evaluation)
    assert history["loss"][-1] < 0.95 * history["loss"][0]
    assert (
        history["generator_perplexity"][-1] < 0.9 * history["generator_perplexity"][0]
    )


@pytest.mark.slow
@pytest.mark.any_backend
def test_two_stages():
    """Train the generator, copy it into the discriminator, train only that."""
    preprocessor = tiny.make_preprocessor()
    generator = tiny.compiled(MaskedLM(tiny.make_backbone()))
    rows = tiny.rows()
    names = ("token_ids", "padding_mask", "mask_positions")
    inputs = {name: rows[name] for name in names}
    settings = {"batch_size": 12, "verbose": 0}
    weights = rows["mask_weights"]
    generator.fit(inputs, rows["mask_ids"], sample_weight=weights, **settings)
    discriminator = ElectraBackbone.from_config(generator.backbone.get_config())
    discriminator.set_weights(generator.backbone.get_weights())
    model = ReplacedTokenDetection(
        discriminator,
        preprocessor,
        generator=generator,
        tie="none",
        train_generator=False,
    )
    tiny.compiled(model)
    frozen = [*model.generator.weights, *model.generator_head.weights]
    before = [ops.convert_to_numpy(w) for w in (*frozen, *discriminator.weights)]
    losses = model.fit(rows, **settings).history
    after = [ops.convert_to_numpy(w) for w in (*frozen, *discriminator.weights)]
    same = [np.array_equal(one, two) for one, two in zip(before, after, strict=True)]
    assert all(same[: len(frozen)]) and not any(same[len(frozen) :])
    assert losses["loss"][-1] == pytest.approx(
        50 * losses["discriminator_loss"][-1], rel=0.02
    )
    assert all(w.trainable for w in frozen)


@pytest.mark.slow
def test_preprocessor_has_the_settings_of_the_released_code():
    lengths = {(128, 0.15): 19, (512, 0.15): 79, (512, 0.25): 130}
    for (length, rate), slots in lengths.items():
        preprocessor = tiny.make_preprocessor(
            sequence_length=length, mask_selection_rate=rate
        )
        assert preprocessor.slots() == slots
    x = tiny.batch()
    masked = np.take_along_axis(x["token_ids"], x["mask_positions"], 1)
    assert (masked[x["mask_weights"] > 0] == 4).all()
    for row, weights in zip(x["mask_positions"], x["mask_weights"], strict=True):
        assert len({*row[weights > 0]}) == weights.sum()
    preprocessor = tiny.make_preprocessor(mask_token_rate=0.85)
    x = preprocessor(["the cat sat on the mat and ran by a red tree"] * 400)
    x = {name: np.asarray(value) for name, value in x.items()}
    masked = np.take_along_axis(x["token_ids"], x["mask_positions"], 1)
    kept = (masked == x["mask_ids"])[x["mask_weights"] > 0]
    assert kept.mean() == pytest.approx(0.15, abs=0.04)
