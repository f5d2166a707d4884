"""Pairs of texts to rows, what is to be written, and what was."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.tasks import TextToText, TextToTextPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from tests.tasks.generation.text_to_text_tokenizers import (
    random_texts,
    t5,
    word_piece,
)
from tests.tiny_text_to_text import make

INPUTS, TARGETS = random_texts(30, 6), random_texts(30, 4, seed=1)


@pytest.fixture(scope="module")
def preprocessor():
    return TextToTextPreprocessor(t5(), 24, 16, seed=3)


def token_lists(texts):
    graph = tf.function(lambda x: tokenize(t5(), x))
    return graph(tf.constant(texts)).to_list()


def numpy(example):
    return [np.asarray(part) for part in tf.nest.flatten(example)]


@pytest.mark.slow
def test_forms_of_pairs(preprocessor):
    x, y, weight = expected = preprocessor(INPUTS, TARGETS)
    for k, (inputs, targets) in enumerate(
        zip(token_lists(INPUTS), token_lists(TARGETS), strict=True)
    ):
        inputs, targets = [*inputs[:23], 1], [*targets[:15], 1]
        inside, outside = x["encoder_padding_mask"][k], x["decoder_padding_mask"][k]
        assert x["encoder_token_ids"][k][inside].numpy().tolist() == inputs
        assert y[k][outside].numpy().tolist() == targets
        assert x["decoder_token_ids"][k][outside].numpy().tolist() == [0, *targets[:-1]]
    assert (weight.numpy() == x["decoder_padding_mask"].numpy()).all()
    forms = {"encoder_text": INPUTS, "decoder_text": TARGETS}
    for other in (preprocessor((INPUTS, TARGETS)), preprocessor(forms)):
        for a, b in zip(numpy(other), numpy(expected), strict=True):
            np.testing.assert_array_equal(a, b)
    single = preprocessor(INPUTS[0], TARGETS[0])
    for a, b in zip(numpy(single), numpy(expected), strict=True):
        np.testing.assert_array_equal(a, b[0])
    *_, halved = preprocessor(INPUTS, TARGETS, [0.5] * 30)
    np.testing.assert_array_equal(halved, weight / 2)


@pytest.mark.slow
def test_datasets_of_each_form(preprocessor):
    weights = [1.0, 0.5, 2.0] * 10
    pairs = {"encoder_text": INPUTS, "decoder_text": TARGETS}
    expected = numpy(preprocessor(pairs, sample_weight=weights))
    slices = tf.data.Dataset.from_tensor_slices
    for data in (
        (INPUTS, TARGETS, weights),
        slices((INPUTS, TARGETS, weights)),
        slices((pairs, weights)),
        preprocessor.from_arrays(INPUTS, TARGETS, weights),
    ):
        batches = [numpy(b) for b in preprocessor.dataset(data, 8, training=False)]
        assert [len(batch[-1]) for batch in batches] == [8, 8, 8, 6]
        for part, *given in zip(expected, *batches, strict=True):
            np.testing.assert_array_equal(np.concatenate(given), part)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_all_pairs_once_a_pass_and_the_same_stream(packed):
    preprocessor = TextToTextPreprocessor(t5(), 48, 32, packed=packed, seed=3)
    dataset = preprocessor.dataset((INPUTS, TARGETS), 4)
    streams = [[numpy(batch) for batch in dataset] for _ in range(2)]
    assert {len(batch[-1]) for batch in streams[0]} == {4}  # of one shape
    expected = sorted([*ids, 1] for ids in token_lists(TARGETS))
    for number in range(2):
        found = []
        preprocessor.position.set(number)
        for x, y, weight in dataset:
            of = x.get("decoder_sequence_ids", tf.cast(weight > 0, tf.int32)).numpy()
            for k in range(4):
                for sequence in range(1, of[k].max() + 1):
                    found.append(y[k].numpy()[of[k] == sequence].tolist())
        assert sorted(found) == expected
    assert (len(streams[0]) < 8) == packed
    preprocessor.position.set(1, 1)
    for batch, other in zip(dataset, streams[1][1:], strict=True):
        for a, b in zip(numpy(batch), other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_what_is_to_be_written(preprocessor):
    rows = preprocessor.generate_preprocess(["the cat sat", "a dog"])
    assert rows["decoder_token_ids"].shape == (2, 16)
    assert rows["encoder_token_ids"].shape == (2, 24)
    assert rows["decoder_padding_mask"].numpy().sum(1).tolist() == [1, 1]
    assert [*preprocessor.generate_postprocess(rows)] == ["", ""]
    begun = {"encoder_text": ["the cat"], "decoder_text": ["a big dog"]}
    rows = preprocessor.generate_preprocess(begun, 12)
    assert rows["decoder_token_ids"].shape == (1, 12)
    assert [*preprocessor.generate_postprocess(rows)] == ["a big dog"]
    graph = tf.function(
        lambda x: preprocessor.generate_postprocess(preprocessor.generate_preprocess(x))
    )
    begun = {name: tf.constant(texts) for name, texts in begun.items()}
    assert graph(begun).numpy().tolist() == [b"a big dog"]
    started = TextToTextPreprocessor(word_piece(), 24)
    rows = started.generate_preprocess("the cat")
    assert rows["decoder_token_ids"].numpy()[:3].tolist() == [3, 2, 0]
    with pytest.raises(ValueError, match="must have prompts of fewer than 3 tokens"):
        preprocessor.generate_preprocess({**begun}, 3)


def test_what_is_refused(preprocessor):
    with pytest.raises(ValueError, match="`x` and `y` must be inputs.*y=NoneType"):
        preprocessor(INPUTS)
    with pytest.raises(ValueError, match=r"equally many pairs.*\(30,\), \(2,\)"):
        preprocessor(INPUTS, TARGETS[:2])
    with pytest.raises(ValueError, match="`x` must be strings.*3"):
        preprocessor([3], ["a"])
    pairs = {"encoder_text": INPUTS, "decoder_text": TARGETS, "sample_weights": [0]}
    with pytest.raises(ValueError, match=r"`x` must have .* only.*'sample_weights'"):
        preprocessor(pairs)
    with pytest.raises(ValueError, match="`data` must be a `tf.data.Dataset`.*list"):
        preprocessor.dataset(INPUTS)
    with pytest.raises(ValueError, match=r"equally many pairs.*\(30,\), \(2,\)"):
        preprocessor(INPUTS, TARGETS, [1.0, 2.0])
    batches = tf.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).batch(2)
    with pytest.raises(ValueError, match="single pairs, not of batches"):
        preprocessor.dataset(batches)
    with pytest.raises(ValueError, match="at least one"):
        preprocessor.dataset(([], []))
    with pytest.raises(ValueError, match="`target_length` must be at least 3.*2"):
        TextToTextPreprocessor(t5(), 24, 2)
    config = preprocessor.get_config()
    copy = TextToTextPreprocessor.from_config({**config, "tokenizer": t5()})
    assert copy.get_config() == config


@pytest.mark.slow
@pytest.mark.parametrize(
    "texts",
    [
        ["a cat"],
        "a cat",
        np.array(["a cat"]),
        tf.constant(["a cat"]),
        tf.data.Dataset.from_tensors(["a cat"]),
    ],
    ids=["list", "string", "array", "tensor", "dataset"],
)
def test_predict_says_who_writes(preprocessor, texts):
    size = preprocessor.tokenizer.vocabulary_size()
    backbone = make("T5", vocabulary_size=size)
    model = TextToText(backbone, preprocessor)
    with pytest.raises(ValueError, match="call `generate\\(texts\\)`"):
        model.predict(texts, verbose=0)
    x, _, _ = preprocessor(["a cat"], ["a"])
    assert model.predict(x, verbose=0).shape[-1] == size
