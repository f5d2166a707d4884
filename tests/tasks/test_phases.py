"""Pre-training in phases, and the phases by which families were pre-trained."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, optimizers, tasks
from keras_bertfam.callbacks import BackupAndResume, PresetCheckpoint
from keras_bertfam.layers import sample_corpora
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.tasks import Phase, pretraining_phases, train_in_phases
from keras_bertfam.tasks.phases import _plan
from tests import tiny_masked_lm as tiny


class Stop(keras.callbacks.Callback):
    """Ends a run as a kill would, after a number of batches in all."""

    def __init__(self, after):
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            raise InterruptedError


def rates(model):
    """Record each step's rate, length and objective."""
    seen = []

    class Rates(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            optimizer = self.model.optimizer
            task = self.model
            length = task.preprocessor.sequence_length
            rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
            seen.append((type(task).__name__, length, round(rate, 6)))

    return seen, Rates()


def mixture():
    texts = [text.decode() for text in tiny.documents().as_numpy_iterator()]
    parts = {"a": texts[:40], "b": texts[40:]}
    parts = {n: tf.data.Dataset.from_tensor_slices(t) for n, t in parts.items()}
    return sample_corpora(parts)


OPTIMIZER = {
    "learning_rate": 0.01,
    "warmup_steps": 0,
    "schedule_form": "join",
    "weight_decay": 0.0,
}
THREE = [
    Phase(4, sequence_length=8, mix_exponent=0.7, languages=["a"]),
    Phase(5, 4, 16, mix_exponent=0.3, languages=["a", "b"]),
    Phase(
        3,
        learning_rate=0.001,
        preprocessor_arguments={"mask_selection_rate": 0.05},
    ),
]


def run(folder=None, phases=THREE, after=None, model=None, **kwargs):
    model = model or tiny.make_model(0.1)
    callbacks = [] if after is None else [Stop(after)]
    return train_in_phases(
        model,
        kwargs.pop("documents", None) or mixture(),
        phases,
        folder,
        batch_size=6,
        save_freq=2,
        optimizer_arguments=OPTIMIZER,
        callbacks=callbacks + kwargs.pop("callbacks", []),
        verbose=0,
        **kwargs,
    )


def weights(model):
    return [np.asarray(each) for each in model.get_weights()]


def same(one, two):
    return all(
        np.array_equal(x, y) for x, y in zip(weights(one), weights(two), strict=True)
    )


@pytest.mark.slow
@pytest.mark.any_backend
def test_killed_in_a_phase_it_goes_on_to_the_same_weights(tmp_path):
    seen, record = rates(None)
    whole = run(callbacks=[record])
    assert [(length, rate) for _, length, rate in seen] == [
        *[(8, round(0.01 * (9 - k) / 9, 6)) for k in range(4)],
        *[(16, round(0.01 * (9 - k) / 9, 6)) for k in range(4, 9)],  # one schedule
        *[(16, round(0.001 * (3 - k) / 3, 6)) for k in range(3)],
    ]
    assert whole.preprocessor.mask_selection_rate == 0.05
    for after in (7, 3):  # in the second phase, and in the third
        with pytest.raises(InterruptedError):
            run(tmp_path, after=after)
    resumed = run(tmp_path)
    assert same(whole, resumed)
    left = [path.name for path in sorted(tmp_path.iterdir())]
    assert left == ["phase-2", "phases.json"]
    with pytest.raises(ValueError, match="`phases` must be those of the killed run"):
        run(tmp_path, phases=THREE[:2])


def modern(causal):
    keras.utils.set_random_seed(1)
    model = tiny.make_model()
    backbone = models.ModernBertBackbone(
        model.backbone.vocabulary_size,
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
        max_sequence_length=64,
        causal=causal,
    )
    tokenizer = model.preprocessor.tokenizer
    task = tasks.CausalLM if causal else tasks.MaskedLM
    return task(backbone, task.preprocessor_cls(tokenizer, 16))


@pytest.mark.slow
def test_causal_first_then_masked():
    phases = [
        Phase(3, learning_rate=0.01),
        Phase(3, objective="mlm", backbone_arguments={"rotary_base": (160000.0,) * 2}),
    ]
    seen, record = rates(None)
    documents = tiny.documents()
    model = run(
        phases=phases, model=modern(True), documents=documents, callbacks=[record]
    )
    assert type(model) is tasks.MaskedLM and not model.backbone.causal
    assert model.backbone.rotary_base == (160000.0, 160000.0)
    assert seen == [("CausalLM", 16, rate) for _, _, rate in seen[:3]] + [
        ("MaskedLM", 16, rate) for _, _, rate in seen[3:]
    ]
    assert len(seen) == 6


@pytest.mark.slow
@pytest.mark.any_backend
def test_weights_are_taken_over():
    frozen = {"optimizer": "adamw", "weight_decay": 0.0, "learning_rate": 1e-12}
    one = modern(False)
    before = weights(one.backbone)
    model = run(
        phases=[
            Phase(1, optimizer_arguments=frozen),
            Phase(1, objective="clm", optimizer_arguments=frozen),
            Phase(1, objective="mlm", optimizer_arguments=frozen),
        ],
        model=one,
        documents=tiny.documents(),
    )
    for x, y in zip(before, weights(model.backbone), strict=True):
        assert np.allclose(x, y, atol=1e-6)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ([], "`phases` must be a list of one `Phase` or more. Received: []."),
        ([{"steps": 3}], "`phases` must be a list of one `Phase` or more."),
        ([Phase(1, sequence_length=17)], "`sequence_length` must be at most 16, the"),
        ([Phase(1, mix_exponent=0.5)], "`documents` must be mixed by `sample_cor"),
        ([Phase(1), Phase(1, learning_rate=0.0)], "`learning_rate` must be"),
        ([Phase(1), Phase(1, dataset_arguments={"packing": "x"})], "`packing` must be"),
        ([Phase(1), Phase(5, learning_rate=0.1, warmup_steps=9)], "`warmup_steps`"),
        (
            [Phase(1), Phase(1, preprocessor_arguments={"mask_selection_rate": 2.0})],
            "`mask_selection_rate` must be",
        ),
    ],
)
def test_phases_that_cant_be(phases, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        train_in_phases(tiny.make_model(), tiny.documents(), phases)


@pytest.mark.any_backend
def test_languages_through_phases():
    model = tiny.make_model()
    tokenizer = model.preprocessor.tokenizer
    fed = tasks.MaskedLMPreprocessor(tokenizer, 16, languages=["a"], separators=3)
    model.preprocessor = fed
    plan = [Phase(1), Phase(1, objective="clm"), Phase(1, objective="mlm")]
    message = "such as 'mlm', after a phase with languages=['a']. Received one of Caus"
    with pytest.raises(ValueError, match=re.escape(message)):
        train_in_phases(model, tiny.documents(), plan)
    parts = [*_plan(model, tiny.documents(), plan[:1] + plan[2:])]
    assert parts[1].preprocessor.languages == ["a"]
    plan[0] = Phase(1, preprocessor_arguments={"languages": None})
    *_, last = _plan(model, tiny.documents(), plan)
    assert (last.preprocessor.languages, last.preprocessor.separators) == (None, 3)
    model = tasks.Distiller(model, tiny.make_model(), fed)  # of another class
    *_, last = _plan(model, tiny.documents(), plan[2:])
    assert last.preprocessor.languages == ["a"]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "`steps` must be an int of at least 1. Received: 0."),
        ({"steps": 1, "batch_size": 0}, "`batch_size` must be an int of at least 1"),
        ({"steps": 1, "mix_exponent": 2.0}, "`mix_exponent` must be a fin"),
        ({"steps": 1, "learning_rate": float("nan")}, "`learning_rate` must be a fin"),
        ({"steps": 1, "objective": "lm"}, "`objective` must be one of ["),
        ({"steps": 1, "languages": "de"}, "`languages` must be several strings."),
        ({"steps": 1, "backbone_arguments": 3}, "`backbone_arguments` must be a dict."),
        ({"batch_size": 3}, "`phases` must be dicts with `steps` and the settings"),
        ({"steps": 1, "epochs": 3}, "A setting of `phases` must be one of ['steps',"),
    ],
)
def test_settings_of_phases_that_are_wrong(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Phase.of(settings)


@pytest.mark.any_backend
@pytest.mark.parametrize("family", FAMILIES)
def test_optimizers_of_published_phases(family):
    """What a phase leaves out of its recipe isn't that of the phase before."""
    if not FAMILIES[family].pretraining:
        return
    try:
        phases = pretraining_phases(family, total_steps=100)
    except ValueError as error:
        assert "whose recipe has a number of steps" in str(error)
        return
    rates = {}
    for phase in phases:
        rates |= phase.rates()
        optimizers.pretraining_optimizer(**rates)


@pytest.mark.any_backend
def test_published_phases():
    bert = pretraining_phases("bert", total_steps=1000)
    assert [(p.steps, p.sequence_length) for p in bert] == [(900, 128), (100, 512)]
    assert bert[0].warmup_steps == 0.01 and not bert[1].rates()  # one schedule
    assert bert[0].objective == "nsp"
    modern = pretraining_phases("modernbert")
    assert [phase.steps for phase in modern] == [360_000, 63_600]
    assert [phase.sequence_length for phase in modern] == [1024, 8192]
    ettin = pretraining_phases("ettin", "ettin_encoder_150m_en", 1000)
    assert sum(phase.steps for phase in ettin) == 1000
    masked = [phase.preprocessor_arguments["mask_selection_rate"] for phase in ettin]
    assert masked == [0.3, 0.3, 0.15]
    assert ettin[1].optimizer_arguments["end_share"] == 0.5
    assert [p.objective for p in pretraining_phases("modernbert-decoder")] == [
        "clm"
    ] * 3
    mmbert = pretraining_phases("mmbert", "mmbert_small_multi")
    assert [phase.steps for phase in mmbert] == [487_000, 15_900, 2_650]
    assert [phase.sequence_length for phase in mmbert] == [1024, 8192, 8192]
    assert [phase.mix_exponent for phase in mmbert] == [0.7, 0.5, 0.3]
    masked = [phase.preprocessor_arguments["mask_selection_rate"] for phase in mmbert]
    assert masked == [0.3, 0.15, 0.05]
    bases = [phase.backbone_arguments["rotary_base"] for phase in mmbert]
    assert bases == [(10_000.0,) * 2, (160_000.0,) * 2, (160_000.0,) * 2]
    assert [phase.learning_rate for phase in mmbert] == [8e-4, 4e-4, 4e-4]
    euro = pretraining_phases("eurobert")
    masked = [phase.preprocessor_arguments["mask_selection_rate"] for phase in euro]
    assert masked == [0.5, 0.1]
    first, _ = pretraining_phases("bert", "bert_base_multi")
    assert first.mix_exponent == 0.7
    (roberta,) = pretraining_phases("xlm-roberta")
    assert roberta.mix_exponent == 0.3
    with pytest.raises(ValueError, match="`total_steps` must be at least 3, one for"):
        pretraining_phases("ettin", total_steps=2)
    assert [p.steps for p in pretraining_phases("ettin", total_steps=3)] == [1, 1, 1]


@pytest.mark.any_backend
def test_callbacks_that_count_steps(tmp_path):
    for kind in (PresetCheckpoint, BackupAndResume, keras.callbacks.TensorBoard):
        with pytest.raises(ValueError, match="`callbacks` of phases must not count"):
            run(phases=[Phase(1)], callbacks=[kind(tmp_path)])
    with pytest.raises(ValueError, match=r"Phases count steps.*\['epochs'\]"):
        run(phases=[Phase(1)], epochs=3)
