"""From documents to inputs and targets: nothing lost, the same stream each time."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer, Mixture, RandomSpans, read_tokens
from keras_bertfam.presets import preset_checks
from keras_bertfam.tasks import DenoisingPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from keras_bertfam.tokenizers.t5 import sentinel_ids
from tests import tiny_corpus
from tests.tasks.generation.text_to_text_tokenizers import (
    as_dataset,
    byte_pair,
    random_texts,
    t5,
    word_piece,
)

PAD, END = 0, 1


def make(length=24, **kwargs):
    return DenoisingPreprocessor(t5(), length, seed=3, **kwargs)


def token_lists(tokenizer, texts):
    return tf.function(lambda x: tokenize(tokenizer, x))(tf.constant(texts)).to_list()


def stream(dataset):
    return [
        [np.asarray(x).tolist() for x in tf.nest.flatten(batch)] for batch in dataset
    ]


def recovered(inputs, targets):
    """The text of inputs and targets, without their end tokens; no noise is first."""
    sentinels = {*sentinel_ids(t5())}
    assert inputs[-1] == targets[-1] == END
    spans, text = [], []
    for token in targets[:-1]:
        if token in sentinels:
            spans.append((token, []))
        else:
            spans[-1][1].append(token)
    spans = dict(spans)
    for token in inputs[:-1]:
        text += spans.pop(token) if token in sentinels else [token]
    # Of a text that is too short for noise, targets are a sentinel alone.
    assert not spans or [*spans.values()] == [[]]
    return text


@pytest.mark.slow
def test_no_text_of_the_stream_is_lost():
    texts = random_texts(60)
    preprocessor = make()
    x, y, weights = zip(
        *preprocessor.dataset(as_dataset(texts), 4, training=False), strict=True
    )
    found = []
    for inputs, mask, targets, weight in zip(
        np.concatenate([part["encoder_token_ids"] for part in x]),
        np.concatenate([part["encoder_padding_mask"] for part in x]),
        np.concatenate(y),
        np.concatenate(weights),
        strict=True,
    ):
        assert (inputs[~mask] == PAD).all()
        found += recovered(inputs[mask].tolist(), targets[weight > 0].tolist())
    assert found == sum(token_lists(t5(), texts), [])
    # All rows but the last are full.
    assert np.concatenate([part["encoder_padding_mask"] for part in x])[:-1].all()
    assert np.concatenate(weights)[:-1].all()


@pytest.mark.slow
@pytest.mark.parametrize("prepared", [False, True])
def test_packed_texts_are_whole_and_their_targets_beside_them(prepared, tmp_path):
    texts = random_texts(150, 12)
    preprocessor = make(length=40)
    documents = as_dataset(texts)
    if prepared:
        documents = read_tokens(tiny_corpus.prepare(tmp_path, t5(), texts))
    data = preprocessor.dataset(documents, 4, packing="best_fit")
    x, y, weight = data.element_spec
    lengths = {name: spec.shape[1] for name, spec in x.items()}
    assert lengths["encoder_token_ids"] == lengths["encoder_sequence_ids"] == 40
    target = lengths["decoder_token_ids"]
    assert y.shape == weight.shape == (4, target)
    assert lengths["decoder_sequence_ids"] == lengths["decoder_padding_mask"] == target
    expected = sorted(token_lists(t5(), texts))
    data = preprocessor.dataset(documents, 4, packing="best_fit", training=False)
    found, several = [], 0
    for x, y, weight in data:
        x = {name: value.numpy() for name, value in x.items()}
        assert ((weight.numpy() > 0) == x["decoder_padding_mask"]).all()
        for k in range(len(y)):
            inside = x["encoder_sequence_ids"][k]
            outside = x["decoder_sequence_ids"][k]
            assert inside.max() == outside.max()
            several += inside.max() > 1
            for number in range(1, inside.max() + 1):
                inputs = x["encoder_token_ids"][k][inside == number].tolist()
                targets = y.numpy()[k][outside == number].tolist()
                decoder = x["decoder_token_ids"][k][outside == number].tolist()
                assert decoder == [PAD, *targets[:-1]]
                found.append(recovered(inputs, targets))
    assert sorted(found) == expected and several > 20


@pytest.mark.slow
def test_the_same_stream_at_any_parallelism_and_resumed():
    preprocessor = make()
    packed = preprocessor.pack(as_dataset(random_texts(120)), "best_fit").cache()
    dataset = preprocessor.dataset(packed, 4)
    first, second = stream(dataset), stream(dataset)
    assert first != second and len(first) == len(second) > 8
    preprocessor.position.set(1, 3)
    assert stream(dataset) == second[3:]
    preprocessor.position.set(0)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    assert stream(dataset.with_options(options)) == first


def test_strings_are_rows_of_their_own():
    preprocessor = make()
    texts = ["the cat sat on the old mat", "cat", ""]
    x, y, weight = preprocessor(texts, seed=[1, 2])
    assert {name: value.shape[0] for name, value in x.items()} == dict.fromkeys(x, 3)
    again = preprocessor(texts, seed=[1, 2])
    assert y.numpy().tolist() == again[1].numpy().tolist()
    inside = x["encoder_padding_mask"].numpy()
    for k, text in enumerate(token_lists(t5(), texts)[:2]):
        inputs = x["encoder_token_ids"].numpy()[k][inside[k]].tolist()
        targets = y.numpy()[k][weight.numpy()[k] > 0].tolist()
        assert recovered(inputs, targets) == text
    single, *_ = preprocessor(texts[0])
    assert single["decoder_token_ids"].shape == y.shape[1:]
    rows = preprocessor.encode(texts, padding="max_length")
    assert rows["token_ids"].shape == (3, 26)  # which fill inputs of 24


def test_what_is_to_be_filled_in():
    preprocessor = make()
    rows = preprocessor.generate_preprocess(["the <extra_id_0> sat <extra_id_1>"])
    inside = rows["encoder_padding_mask"].numpy()[0]
    inputs = rows["encoder_token_ids"].numpy()[0][inside].tolist()
    first, second, *_ = sentinel_ids(t5())
    assert (inputs[-2:], inputs.count(first)) == ([second, END], 1)
    assert rows["decoder_token_ids"].shape == (1, preprocessor.layout.target_length)
    assert [*preprocessor.generate_postprocess(rows)] == [""]


@pytest.mark.slow
def test_any_objective_with_any_tokenizer():
    texts = random_texts(20)
    for tokenizer, objective in (
        (t5(), Mixture(["mass", "prefix_lm"], mode_tokens=["<extra_id_9>", None])),
        (byte_pair("bart"), "bart"),
        (word_piece(), ["token_masking", "document_rotation"]),
    ):
        preprocessor = DenoisingPreprocessor(tokenizer, 24, objective)
        x, _, weight = preprocessor(texts)
        assert weight.numpy().any()
        started = tokenizer is not t5()
        first = tokenizer.end_token_id if started else PAD
        assert (x["decoder_token_ids"].numpy()[:, 0] == first).all()
        begins = x["encoder_token_ids"].numpy()[:, 0] == tokenizer.start_token_id
        assert begins.all() == started
    special = DenoisingPreprocessor(t5(), 24, decoder_start_token_id=7)
    assert special(texts)[0]["decoder_token_ids"].numpy()[0, 0] == 7


def test_what_is_saved(tmp_path):
    preprocessor = make(objective=RandomSpans(0.3, 2.0), target_length=20)
    preprocessor.save_to_preset(tmp_path / "preset")
    name = preset_checks.PREPROCESSOR_FILE
    copy = preset_checks.load_serialized(str(tmp_path / "preset"), name)
    assert copy.get_config() == preprocessor.get_config()
    texts = random_texts(5)
    assert copy(texts)[1].numpy().tolist() == preprocessor(texts)[1].numpy().tolist()


@pytest.mark.slow
def test_what_is_refused():
    with pytest.raises(ValueError, match="`sentinel_ids` must be the ids.*`train_sent"):
        DenoisingPreprocessor(byte_pair("bart"), 24)
    with pytest.raises(ValueError, match="`mask_token_id` must be"):
        DenoisingPreprocessor(byte_pair("gpt2"), 24, "mass")
    with pytest.raises(ValueError, match="`objective` must.*'random_spans'.*'t5'"):
        DenoisingPreprocessor(t5(), 24, "t5")
    with pytest.raises(ValueError, match="`target_length` must be at least 6.*5"):
        make(target_length=5)
    with pytest.raises(ValueError, match=r"`tokenizer` must have.*without \['\[S2S\]'"):
        make(objective=Mixture(["mass"], mode_tokens=["[S2S]"]))
    with pytest.raises(ValueError, match="`sentinel_ids` must have at least 42 .*30"):
        make(128, objective=RandomSpans(0.5, 2))
    texts = as_dataset(random_texts(9))
    with pytest.raises(ValueError, match="`packing` must be one of.*'stream'.*'rows'"):
        make().dataset(texts, packing="rows")
    with pytest.raises(ValueError, match="`tokens_per_batch` must be `None`.*100"):
        make().dataset(texts, packing="best_fit", tokens_per_batch=100)
    with pytest.raises(ValueError, match="full stops.*none"):
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"]
        DenoisingPreprocessor(BertTokenizer(vocabulary), 24, "bart")
    with pytest.raises(tf.errors.InvalidArgumentError, match="fill at least one batch"):
        next(iter(make().dataset(as_dataset(["", " "]))))
