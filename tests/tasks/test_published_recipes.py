"""Tasks and preprocessors do by default what was published."""

import warnings

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, optimizers, tasks
from keras_bertfam.layers import BertTokenizer, SmoothedTokens
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.tasks.recipes import _MEANINGS
from keras_bertfam.tokenizers import AlbertTokenizer
from tests import tiny_masked_lm as tiny
from tests.tiny_sentence_piece import train_sentence_piece

SIZE = {
    "vocabulary_size": 30,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "max_sequence_length": 16,
}
TEXT = "the cat sat\na dog ran on the mat\nthe dog saw a tree\na cat ran by the hat"


def make(task, backbone, **size):
    size = {**SIZE, **size}
    if backbone == "XLNetBackbone":
        del size["max_sequence_length"]
    return getattr(tasks, task)(getattr(models, backbone)(**size))


def word_piece():
    return BertTokenizer([*tiny.SPECIALS, *tiny.WORDS], lowercase=True)


def byte_pair():
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokens = [*specials, *"acehst.", "at", "Ġ"]
    ids = {token: number for number, token in enumerate(tokens)}
    return keras_hub.tokenizers.RobertaTokenizer(ids, ["a t"])


def sentence_piece():
    specials = {"bos_id": -1, "eos_id": -1, "pad_id": 0, "unk_id": 1}
    symbols = ["[CLS]", "[SEP]", "[MASK]"]
    proto = train_sentence_piece([TEXT], symbols, vocab_size=60, **specials)
    return AlbertTokenizer(proto)


# The published rate, warm-up, second moment's decay, clipping and form.
PUBLISHED = {
    ("MaskedLM", "BertBackbone"): (1e-4, 0.01, 0.999, 1.0, "hold"),
    ("MaskedLM", "EncoderBackbone"): (1e-4, 0.01, 0.999, 1.0, "hold"),
    ("MaskedLM", "RobertaBackbone"): (6e-4, 0.048, 0.98, None, "join"),
    ("MaskedLMSentencePair", "RobertaBackbone"): (6e-4, 0.048, 0.98, None, "join"),
    ("MaskedLMSentencePair", "AlbertBackbone"): (0.00176, 0.025, 0.999, 1.0, "hold"),
    ("SpanBoundaryLM", "BertBackbone"): (1e-4, 1 / 240, 0.999, 1.0, "join"),
    ("ReplacedTokenDetection", "BertBackbone"): (5e-4, 0.01, 0.999, 1.0, "product"),
    ("PermutationLM", "XLNetBackbone"): (4e-4, 0.08, 0.999, 1.0, "join"),
}


@pytest.mark.parametrize(("task", "backbone"), PUBLISHED)
def test_compile_takes_the_recipe(task, backbone):
    model = make(task, backbone)
    optimizer, schedule = model.optimizer, model.optimizer._learning_rate
    received = (
        schedule.peak_learning_rate,
        schedule.warmup_steps,
        optimizer.beta_2,
        optimizer.global_clipnorm,
        schedule.form,
    )
    expected = PUBLISHED[task, backbone]
    assert received[1] == pytest.approx(expected[1])
    assert received[:1] + received[2:] == expected[:1] + expected[2:]
    assert schedule.total_steps is None
    adam, lamb = keras.optimizers.AdamW, optimizers.Lamb
    assert isinstance(optimizer, lamb if backbone == "AlbertBackbone" else adam)


def test_the_recipe_is_of_the_nearest_width():
    large = models.RobertaBackbone.from_preset(
        "roberta_large_en", load_weights=False, vocabulary_size=30, num_layers=1
    )
    assert tasks.MaskedLM(large).optimizer._learning_rate.peak_learning_rate == 4e-4
    rates = {
        width: models.ElectraBackbone.record.pretraining_recipe(width).learning_rate
        for width in (16, 256, 768, 900, 1024, 4096)
    }
    small, base, large = 5e-4, 2e-4, 2e-4
    assert list(rates.values()) == [small, small, base, large, large, large]


def test_arguments_of_compile_come_first():
    model = make("MaskedLM", "RobertaBackbone")
    model.compile(learning_rate=1e-3, warmup_steps=7, total_steps=70)
    schedule = model.optimizer._learning_rate
    received = schedule.peak_learning_rate, schedule.warmup_steps, schedule.total_steps
    assert received == (1e-3, 7, 70)
    assert model.optimizer.beta_2 == 0.98


@pytest.mark.parametrize(
    ("backbone", "rate", "warmup", "decay"),
    [
        ("BertBackbone", 5e-5, 0.1, 0.01),
        ("RobertaBackbone", 3e-5, 0.06, 0.1),
        ("ElectraBackbone", 1e-4, 0.1, 0.01),
    ],
)
def test_fine_tuning_is_the_family_s(backbone, rate, warmup, decay):
    model = tasks.TextClassifier(getattr(models, backbone)(**SIZE), num_classes=2)
    schedule = model.optimizer._learning_rate
    assert (schedule.peak_learning_rate, schedule.warmup_steps) == (rate, warmup)
    layerwise = isinstance(model.optimizer, optimizers.LayerwiseAdamW)
    assert layerwise == (backbone == "ElectraBackbone")
    own = "decoupled_weight_decay" if layerwise else "weight_decay"
    assert getattr(model.optimizer, own) == decay


def printed(model):
    lines = []
    model.recipe(print_fn=lines.append)
    [table] = lines
    return table


def test_recipe_is_printed_with_its_source():
    model = make("MaskedLM", "RobertaBackbone")
    table = printed(model)
    assert "MaskedLM of RobertaBackbone" in table
    assert "Liu et al., 2019" in table and "*" not in table
    assert ["learning_rate", "0.0006", "0.0006"] in [
        x.split() for x in table.split("\n")
    ]
    assert "join: the rate climbs" in table and "hold:" not in table
    model.compile(keras.optimizers.SGD(0.1))
    assert "*: differs from the published setting" in printed(model)
    table = [x.split() for x in printed(model).split("\n")]
    assert ["optimizer", "SGD", "*", "adamw"] in table
    assert ["learning_rate", "0.1", "*", "0.0006"] in table


@pytest.mark.any_backend
def test_all_schedules_of_recipes_are_explained():
    used = {
        recipe.schedule_form
        for record in FAMILIES.values()
        for recipe in record.pretraining.values()
    }
    assert used - {"constant"} <= {*_MEANINGS}


@pytest.mark.slow
@pytest.mark.any_backend
def test_recipe_of_a_fitted_and_a_fine_tuned_task(no_steps):
    model = tiny.make_model()
    model.compile()
    model.fit(tiny.stream(model), verbose=0)
    table = [x.split() for x in printed(model).split("\n")]
    assert ["total_steps", "7", "*", "1000000"] in table
    assert ["mask_selection_rate", "0.3", "*", "0.15"] in table
    table = printed(tasks.TextClassifier(models.BertBackbone(**SIZE), num_classes=2))
    assert "5e-05, 3e-05, 2e-05" in table and "appendix A.3" in table


@pytest.fixture
def no_steps(monkeypatch):
    """What `fit()` does before the first step, without any."""
    monkeypatch.setattr(keras_hub.models.Task, "fit", lambda *args, **kwargs: None)


def messages(model, data, **kwargs):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(data, verbose=0, steps_per_epoch=1, **kwargs)
    texts = [str(w.message) for w in caught]
    return [text for text in texts if "published learning rate" in text]


@pytest.mark.slow
@pytest.mark.any_backend
def test_small_batches_are_told_with_the_usual_scaling(no_steps):
    model = tiny.make_model()
    data = tiny.stream(model)
    assert messages(model, data) == []  # compiled with a rate of its own
    model.compile()
    [text] = messages(model, data)
    assert "1e-04" in text or "0.0001" in text
    assert "256 rows, and these have 8" in text and "learning_rate=1.8e-05" in text
    assert "3.1e-06" in text
    model.compile(learning_rate=1e-4)
    assert messages(model, data) == []
    model.compile()
    assert messages(model, ["the cat sat"] * 70, batch_size=70) == []
    assert len(messages(model, ["the cat sat"] * 70, batch_size=20)) == 1


@pytest.mark.slow
@pytest.mark.any_backend
def test_accumulated_rows_count(no_steps):
    model = tiny.make_model()
    model.compile(
        optimizers.pretraining_optimizer(gradient_accumulation_steps=8, total_steps=9)
    )
    assert messages(model, tiny.stream(model)) == []


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (word_piece, ("tokens", "bert", False, True, "nsp", 1)),
        (byte_pair, ("tokens", "fairseq", True, False, "nsp", 2)),
        (sentence_piece, ("ngrams", "bert", False, True, "sop", 1)),
    ],
)
def test_preprocessors_do_as_the_tokenizer_s_family(tokenizer, expected):
    preprocessor = tasks.MaskedLMSentencePairPreprocessor(tokenizer(), 16)
    received = (
        preprocessor.strategy.name,
        preprocessor.selections_per_row,
        preprocessor.mask_special_tokens,
        preprocessor.random_special_tokens,
        preprocessor.sentence_objective,
        preprocessor.separators,
    )
    assert received == expected
    single = tasks.MaskedLMPreprocessor(tokenizer(), 16).get_config()
    assert single["selections_per_row"] == expected[1]
    assert single["mask_special_tokens"] is expected[2]
    given = tasks.MaskedLMPreprocessor(
        tokenizer(), 16, strategy="smoothed_tokens", selections_per_row="spanbert"
    )
    assert given.strategy.name == "smoothed_tokens"
    assert given.selections_per_row == "spanbert"


def test_albert_s_pairs_without_a_preprocessor():
    model = make("MaskedLMSentencePair", "AlbertBackbone")
    assert model.sentence_objective == "sop"
    assert make("MaskedLMSentencePair", "BertBackbone").sentence_objective == "nsp"


@pytest.mark.any_backend
def test_fairseq_selects_special_tokens_and_never_draws_them():
    tokenizer = byte_pair()
    preprocessor = tasks.MaskedLMPreprocessor(
        tokenizer,
        16,
        mask_selection_rate=1.0,
        mask_token_rate=0.0,
        random_token_rate=1.0,
    )
    ids = np.full((500, 16), 7, "int32")
    ids[:, 0], ids[:, -3:] = 0, [2, 1, 1]  # <s>, </s> and padding
    rows = {"token_ids": tf.constant(ids), "padding_mask": tf.constant(ids != 1)}
    x, y, weights = preprocessor.corrupt(rows, [1, 2])
    assert (np.asarray(y)[:, 0] == 0).all() and (np.asarray(y)[:, 13] == 2).all()
    assert (np.asarray(weights).sum(1) == 14).all()
    drawn = np.asarray(x["token_ids"])[:, :14].ravel()
    # Every token, `<mask>` too, but the first four.
    assert set(drawn) == set(range(4, tokenizer.vocabulary_size()))
    expected = len(drawn) / (tokenizer.vocabulary_size() - 4)
    counts = np.bincount(drawn)[4:]
    assert ((counts - expected) ** 2 / expected).sum() < 28  # chi-square, 9 degrees
    weights = [1.0] * 10 + [0.0] * (tokenizer.vocabulary_size() - 10)
    settings = {**preprocessor.get_config(), "random_token_weights": weights}
    weighted = tasks.MaskedLMPreprocessor(**{**settings, "tokenizer": tokenizer})
    x, _, _ = weighted.corrupt(rows, [1, 2])
    assert set(np.asarray(x["token_ids"])[:, :14].ravel()) == set(range(4, 10))


def electra(**kwargs):
    return tasks.ReplacedTokenDetectionPreprocessor(word_piece(), 16, **kwargs)


def documents():
    return tf.data.Dataset.from_tensor_slices([TEXT] * 20)


@pytest.mark.slow
@pytest.mark.any_backend
def test_electra_s_rows_have_two_segments():
    batch = next(iter(electra().dataset(documents(), 8)))
    segments = np.asarray(batch["segment_ids"])
    ids = np.where(
        np.asarray(batch["token_ids"]) == 4, -1, np.asarray(batch["token_ids"])
    )
    assert segments.shape == (8, 16) and set(segments.ravel()) == {0, 1}
    # The second segment begins behind a [SEP], 3, and goes to the end of the row.
    for row, token_ids in zip(segments, ids, strict=True):
        if row.any():
            assert token_ids[row.argmax() - 1] == 3
    assert (segments.max(1) == 1).mean() > 0.5
    packed = electra().pack(documents())
    again = next(iter(electra().dataset(packed.cache(), 8)))
    np.testing.assert_array_equal(again["token_ids"], batch["token_ids"])


@pytest.mark.slow
@pytest.mark.any_backend
def test_electra_s_blocks():
    batch = next(iter(electra().dataset(documents(), 8, packing="full")))
    assert "segment_ids" not in batch
    apart = electra(sequence_ids=True)
    assert "sequence_ids" in next(iter(apart.dataset(documents(), 8)))
    with pytest.raises(ValueError, match="`sequence_ids=False`"):
        apart.dataset(documents(), 8, packing="segments")
    assert not np.asarray(electra()(["the cat sat"])["segment_ids"]).any()


def test_electra_s_generator_is_the_published_size_s():
    assert make("ReplacedTokenDetection", "ElectraBackbone").generator_size == 1 / 4
    base = models.ElectraBackbone(**{**SIZE, "hidden_dim": 768, "num_heads": 12})
    assert tasks.ReplacedTokenDetection(base).generator_size == 1 / 3


@pytest.mark.slow
@pytest.mark.any_backend
def test_distillation_masks_rare_tokens_more_often():
    teacher = tiny.make_model()
    student = tasks.MaskedLM.from_teacher(teacher, layers=[0])
    preprocessor = tasks.Distiller(student, teacher).preprocessor
    assert isinstance(preprocessor, tasks.DistillerPreprocessor)
    assert preprocessor.sequence_length == 16
    with pytest.raises(ValueError, match="`token_counts` must be given"):
        preprocessor(["the cat"])
    texts = tf.data.Dataset.from_tensor_slices(["the the the the the the cat"] * 90)
    with pytest.raises(ValueError, match="`token_counts` must be given"):
        preprocessor.dataset(texts, 30, training=False)  # held out, and not counted
    batch = preprocessor.dataset(texts, 30)
    the, cat = preprocessor.tokenizer.token_to_id("the"), 0
    cat = preprocessor.tokenizer.token_to_id("cat")
    counts = preprocessor.strategy.token_counts
    assert (counts[the], counts[cat]) == (540, 90)
    picked = np.concatenate([np.asarray(y)[np.asarray(w) > 0] for _, y, w in batch])
    share = (picked == cat).mean() / (picked == the).mean()
    # One after the other without replacement: near the weights' ratio, 6 ** .7 / 6.
    assert 0.4 < share < 1.0
    # Counts are part of what is saved, and of what comes next.
    copy = type(preprocessor).from_config(preprocessor.get_config())
    assert copy.strategy.token_counts == counts
    held_out = tf.data.Dataset.from_tensor_slices(["a dog"])
    preprocessor.dataset(held_out, 1, training=False)
    assert preprocessor.strategy.token_counts == counts


@pytest.mark.slow
@pytest.mark.any_backend
def test_counting_needs_text():
    preprocessor = tasks.MaskedLMPreprocessor(
        word_piece(), 16, strategy=SmoothedTokens()
    )
    packed = preprocessor.pack(documents())
    with pytest.raises(ValueError, match="call `adapt`"):
        preprocessor.dataset(packed, 2)
    preprocessor.adapt(documents())
    assert preprocessor.dataset(packed, 2)
