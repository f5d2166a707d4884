"""Recipes are of objectives that are here, with arguments that they take."""

import inspect

import pytest

from keras_bertfam import layers, models, tasks
from keras_bertfam.cli.building import pretraining_preprocessor
from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.tasks.recipes import recipe_of

RECIPES = {
    (name, size): recipe
    for name, record in FAMILIES.items()
    for size, recipe in record.pretraining.items()
}


def arguments(cls):
    """Names that a constructor takes, those of its bases included."""
    constructors = (vars(base).get("__init__") for base in cls.__mro__)
    known = (inspect.signature(each).parameters for each in constructors if each)
    return {name for parameters in known for name in parameters}


@pytest.mark.parametrize(("family", "size"), RECIPES)
def test_its_arguments_are_those_of_its_objective(family, size):
    recipe = tasks.pretraining_recipe(family, size or None)
    assert recipe is RECIPES[family, size]
    task = getattr(tasks, recipe.task)
    assert recipe.task_arguments.keys() - {"sentence_objective"} <= arguments(task)
    assert recipe.masking.keys() <= arguments(pretraining_preprocessor(task))
    if isinstance(strategy := recipe.masking.get("strategy"), dict):
        known = arguments(getattr(layers, strategy["class_name"]))
        assert strategy["config"].keys() <= known
    assert "20" in recipe.source
    pretraining_optimizer(
        **{**recipe.optimizer_arguments(), "total_steps": recipe.total_steps}
    )


def test_published_numbers():
    roberta = tasks.pretraining_recipe("RobertaBackbone")
    assert roberta.learning_rate == 6e-4 and roberta.beta_2 == 0.98
    assert roberta.warmup_steps / roberta.total_steps == 0.048
    assert roberta.global_clipnorm is None and roberta.batch_size == 8192
    large = tasks.pretraining_recipe("roberta", "roberta_large_en")
    assert (large.learning_rate, large.warmup_steps) == (4e-4, 30_000)
    albert = tasks.pretraining_recipe("albert", "albert_base_en_uncased")
    assert (albert.optimizer, albert.learning_rate) == ("lamb", 0.00176)
    small = "electra_small_discriminator_uncased_en"
    assert tasks.pretraining_recipe("electra", small).learning_rate == 5e-4
    assert tasks.pretraining_recipe("electra").schedule_form == "product"
    assert tasks.pretraining_recipe("bert").schedule_form == "hold"
    t5 = tasks.pretraining_recipe("t5")
    assert (t5.optimizer, t5.schedule_form) == ("adafactor", "rsqrt")
    assert t5.optimizer_arguments()["warmup_steps"] == 10_000
    assert tasks.pretraining_recipe("openai-gpt").schedule_form == "cosine"
    longformer = tasks.pretraining_recipe("longformer").optimizer_arguments()
    assert longformer["power"] == 3 and longformer["learning_rate"] == 3e-5
    modern = tasks.pretraining_recipe("modernbert")
    assert modern.masking["mask_selection_rate"] == 0.3
    (long,) = modern.phases
    assert (modern.sequence_length, long.sequence_length) == (1024, 8192)
    rows = (modern.batch_size * 1024, long.batch_size * 8192)
    assert rows[0] == rows[1]  # tokens of a step
    assert long.optimizer_arguments()["decay_steps"] == 10_600 / 63_600
    assert long.backbone_arguments["rotary_base"] == (160_000, 10_000)


def test_recipes_of_ettin():
    small = tasks.pretraining_recipe("ettin", "ettin_encoder_17m_en")
    assert (small.learning_rate, small.weight_decay * 3e-3) == (3e-3, 3e-4)
    assert (small.optimizer, small.global_clipnorm) == ("stable_adamw", None)
    backbone = models.EttinBackbone.from_preset(
        "ettin_encoder_17m_en", load_weights=False, vocabulary_size=9, num_layers=1
    )
    model = tasks.MaskedLM(backbone)
    model.compile()
    assert recipe_of(model) == small
    decoder = tasks.pretraining_recipe("modernbert-decoder")
    assert decoder.task == "CausalLM" and not decoder.masking
    largest = tasks.pretraining_recipe("ettin", "ettin_encoder_1b_en")
    tokens = [r.total_steps * r.batch_size * r.sequence_length for r in largest.phases]
    assert tokens == pytest.approx([250e9 / 3, 50e9 / 3], rel=0.01)
    for recipe in (small, decoder):
        longer, decay = recipe.phases
        # The decay begins at the rate that the longer rows end with.
        assert decay.learning_rate == longer.learning_rate * longer.end_share
        for phase in recipe.phases:
            arguments = {**phase.optimizer_arguments(), "total_steps": 100}
            rate = pretraining_optimizer(**arguments)._learning_rate
            peak = phase.learning_rate
            found = [float(rate(step)) / peak for step in (0, 25, 100, 200)]
            end = phase.end_share
            assert found == pytest.approx([1, (1 + end) / 2, end, end], rel=1e-5)


def test_recipes_of_deberta_are_by_size():
    for name, rate, batch, warmup, task in (
        ("deberta_v3_base_en", 1e-4, 256, 10_000, "ReplacedTokenDetection"),
        ("deberta_v3_large_en", 1e-4, 256, 10_000, "ReplacedTokenDetection"),
        ("deberta_v3_extra_small_en", 3e-4, 64, 10_000, "ReplacedTokenDetection"),
        ("deberta_v2_extra_large_en", 1e-4, 32, 1_000, "MaskedLM"),
    ):
        recipe = tasks.pretraining_recipe("deberta-v2", name)
        assert (recipe.learning_rate, recipe.batch_size) == (rate, batch)
        assert (recipe.warmup_steps, recipe.task) == (warmup, task)
        assert recipe.total_steps == 1_000_000 and not recipe.bias_correction
        assert (recipe.beta_2, recipe.epsilon, recipe.global_clipnorm) == (
            0.999,
            1e-6,
            1.0,
        )
    size = {"vocabulary_size": 9, "num_layers": 1, "num_heads": 1, "hidden_dim": 8}
    backbone = models.DebertaV2Backbone(**size, intermediate_dim=8)
    # Each objective has the recipe of the version that was trained by it.
    assert recipe_of(tasks.MaskedLM(backbone)).batch_size == 32
    assert recipe_of(tasks.ReplacedTokenDetection(backbone)).batch_size == 64


@pytest.mark.parametrize(
    ("family", "size", "rate", "epochs"),
    [
        ("deberta", (768, 12), 3e-5, 3),
        ("deberta", (1024, 24), 1e-5, 3),
        ("deberta", (1024, 48), 5e-6, 3),
        ("deberta-v2", (384, 12), 4.5e-5, 3),
        ("deberta-v2", (768, 6), 4.5e-5, 2),
        ("deberta-v2", (768, 12), 1.5e-5, 3),
        ("deberta-v2", (1024, 24), 7e-6, 2),
        ("deberta-v2", (1536, 24), 4e-6, 3),
        ("deberta-v2", (1536, 48), 3e-6, 3),
    ],
)
def test_fine_tuning_of_deberta_is_by_size(family, size, rate, epochs):
    recipe = tasks.fine_tuning_recipe(family, "mnli", *size)
    assert recipe.grid() == [(rate, 64, epochs)] and recipe.sequence_length == 256
    steps = 392_702 * epochs / 64 * recipe.warmup_steps
    assert round(steps) == (500 if size == (1024, 24) and epochs == 2 else 1000)
    usual = tasks.fine_tuning_recipe(family, None, *size)
    assert rate in usual.learning_rates


def test_every_published_family_has_recipes():
    for record in FAMILIES.values():
        assert record.fine_tuning[""].epochs
        assert bool(record.pretraining) == bool(record.sizes)
        assert hasattr(models, record.backbone)


@pytest.mark.parametrize("family", ["gpt", "encoder"])
def test_families_without(family):
    with pytest.raises(ValueError, match=f"`family` must be .*{family}"):
        tasks.pretraining_recipe(family)
