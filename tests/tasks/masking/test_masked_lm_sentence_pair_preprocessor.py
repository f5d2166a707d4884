import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer, mark_languages
from keras_bertfam.tasks import MaskedLMSentencePairPreprocessor

WORDS = [f"w{i}" for i in range(40)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


UNMASKED = {"mask_token_rate": 0.0, "random_token_rate": 0.0}


def make(**kwargs):
    tokenizer = BertTokenizer(VOCABULARY)
    return MaskedLMSentencePairPreprocessor(tokenizer, 16, seed=3, **kwargs)


@pytest.fixture
def documents():
    rng = np.random.default_rng(0)
    texts = [
        "\n".join(" ".join(rng.choice(WORDS, 4)) for _ in range(5)) for _ in range(20)
    ]
    return tf.data.Dataset.from_tensor_slices(texts)


def stream(dataset):
    return [
        (x["token_ids"].numpy().tolist(), y["sentence"].numpy().tolist())
        for x, y, _ in dataset
    ]


@pytest.mark.slow
def test_elements_and_passes(documents):
    preprocessor = make()
    dataset = preprocessor.dataset(documents, 4, break_lines=False)
    x, y, w = dataset.element_spec
    specs = {**x, **{f"y_{k}": v for k, v in y.items()}, "w": w["sentence"]}
    assert {k: (v.shape.as_list(), v.dtype.name) for k, v in specs.items()} == {
        "token_ids": ([4, 16], "int32"),
        "padding_mask": ([4, 16], "bool"),
        "segment_ids": ([4, 16], "int32"),
        "mask_positions": ([4, 2], "int32"),
        "y_masked_lm": ([4, 2], "int32"),
        "y_sentence": ([4], "int32"),
        "w": ([4], "float32"),
    }
    first, second = stream(dataset), stream(dataset)
    assert first != second and len(first) > 5
    preprocessor.position.set(1, 3)  # as a run that is resumed
    assert stream(dataset) == second[3:]
    cached = preprocessor.pack(documents, break_lines=False).cache()
    preprocessor.position.set(0)
    cached = preprocessor.dataset(cached, 4)
    assert [stream(cached), stream(cached)] == [first, second]


@pytest.mark.slow
def test_shuffled_documents(documents):
    shuffled = {"shuffle_documents": 8, "shuffle_buffer": 0, "break_lines": False}
    preprocessor = make(documents_at_once=5)
    in_order = stream(
        preprocessor.dataset(documents, 4, break_lines=False, shuffle_buffer=0)
    )
    preprocessor.position.set(0)
    dataset = preprocessor.dataset(documents, 4, **shuffled)
    first, second = stream(dataset), stream(dataset)
    assert first != second != in_order != first
    preprocessor.position.set(1, 3)  # as a run that is resumed
    assert stream(dataset) == second[3:]
    frozen = preprocessor.dataset(documents, 4, training=False, **shuffled)
    plain = preprocessor.dataset(documents, 4, training=False, break_lines=False)
    assert stream(frozen) == stream(plain)
    with pytest.raises(ValueError, match="`shuffle_documents` must be 0.*ments=8"):
        preprocessor.dataset(preprocessor.pack(documents), 4, shuffle_documents=8)
    with pytest.raises(ValueError, match="`shuffle_documents`.*-1"):
        preprocessor.dataset(documents, 4, shuffle_documents=-1)


@pytest.mark.slow
def test_the_window_is_an_argument():
    # A document each, and so every B is of another one.
    documents = tf.data.Dataset.from_tensor_slices(WORDS)
    preprocessor = make(documents_at_once=2, **UNMASKED)
    rows = preprocessor.pack(documents)
    pairs = [x["token_ids"] for x, _, _ in preprocessor.dataset(rows, 4)]
    apart = [abs(int(row[1]) - int(row[3])) for batch in pairs for row in batch]
    assert max(apart) <= 3 < len(apart)
    with pytest.raises(ValueError, match="`documents_at_once`.*0"):
        make(documents_at_once=0)


@pytest.mark.slow
def test_static_pairs_and_masks_repeat(documents):
    dataset = make().dataset(documents, 4, duplicates=2, break_lines=False)
    passes = [stream(dataset) for _ in range(3)]
    assert passes[0] == passes[2] != passes[1]


@pytest.mark.slow
def test_evaluation_is_frozen(documents):
    dataset = make(sentence_objective="sop").dataset(documents, 4, training=False)
    assert stream(dataset) == stream(dataset)


@pytest.mark.slow
def test_call_on_pairs_and_on_texts():
    preprocessor = make(**UNMASKED)
    x, y, w = preprocessor(
        (["w0 w1", "w2 " * 20], ["w3", "w4 " * 20]), [1, 0], [1, 0.5]
    )
    ids = x["token_ids"].numpy().tolist()
    assert ids[0] == [2, 5, 6, 3, 8, 3] + [0] * 10
    assert ids[1] == [2, *[7] * 7, 3, *[9] * 6, 3]
    assert x["segment_ids"].numpy()[0].tolist() == [0] * 4 + [1] * 2 + [0] * 10
    assert y["sentence"].numpy().tolist() == [1, 0]
    assert w["sentence"].numpy().tolist() == [1.0, 0.5]
    x, y, w = preprocessor(["w0 w1"])
    assert x["token_ids"].numpy()[0, :5].tolist() == [2, 5, 6, 3, 0]
    assert not x["segment_ids"].numpy().any() and w["sentence"].numpy() == [0.0]
    assert (
        make(separators=2)((["w0"], ["w1"]), None)[0]["padding_mask"].numpy().sum() == 6
    )


def test_configuration_and_errors(documents):
    preprocessor = make(sentence_objective="sop", single_sentence="random")
    copy = keras.layers.deserialize(keras.layers.serialize(preprocessor))
    assert copy.get_config() == preprocessor.get_config()
    with pytest.raises(ValueError, match="`sequence_ids=False`"):
        make(sequence_ids=True)
    with pytest.raises(ValueError, match="`objective`.*'pos'"):
        make(sentence_objective="pos")
    with pytest.raises(ValueError, match="`packing`.*'full'"):
        preprocessor.dataset(documents, 4, packing="full")
    with pytest.raises(ValueError, match="`batch_size` and `tokens_per_batch`"):
        preprocessor.dataset(documents, 2, tokens_per_batch=64)
    with pytest.raises(ValueError, match="`break_lines` must be given to `pack`"):
        preprocessor.dataset(preprocessor.pack(documents), break_lines=False)
    with pytest.raises(ValueError, match="two strings, or two equally large"):
        preprocessor((["a"], "b"), None)


@pytest.mark.slow
def test_pairs_are_read_as_texts_are():
    """Masks in texts, and languages, which a masked language model reads otherwise."""
    preprocessor = make(**UNMASKED)

    def first(x):
        return preprocessor(x, None)[0]["token_ids"].numpy()[0].tolist()

    assert first((["w0 [MASK] w1"], ["w3"]))[:7] == [2, 5, 4, 6, 3, 8, 3]
    assert first(["w0 [MASK] w1"])[:5] == [2, 5, 4, 6, 3]
    marked = mark_languages({"en": "w0 w1", "is": "w2"}).numpy()
    assert first(([marked], ["w3"]))[:7] == [2, 5, 6, 7, 3, 8, 3]


@pytest.mark.slow
def test_a_row_of_one_segment_has_no_label():
    pairs = (["w1 w2", "", "w1"], ["", "", "w3"])
    _, y, w = make()(pairs, [1, 0, 1])
    assert y["sentence"].numpy().tolist() == [1, 0, 1]
    assert w["sentence"].numpy().tolist() == [0.0, 0.0, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("x", "y", "weight", "message"),
    [
        ((["w1 w2"], ["w3", "w4", "w5"]), None, None, "two equally large batches"),
        (("w1", "w2", "w3"), None, None, "A tuple `x` must hold two strings"),
        (("w1",), None, None, "A tuple `x` must hold two strings"),
        ((["w1"], ["w2"]), [2], None, r"in \[0, num_classes=2\).*2"),
        ((["w1"], ["w2"]), [-1], None, r"in \[0, num_classes=2\).*-1"),
        ((["w1"], ["w2"]), [0.9], None, "`y` must be integers"),
        ((["w1"], ["w2"]), ["a"], None, "`y` may be strings only with"),
        ((["w1"], ["w2"]), [0, 1], None, "`y` must have a value for each pair"),
        ((["w1"], ["w2"]), [1], [float("nan")], "`sample_weight` .*finite"),
        ((["w1"], ["w2"]), [1], [1.0, 1.0], "`sample_weight` must have a value"),
    ],
)
def test_calls_that_make_no_sense(x, y, weight, message):
    with pytest.raises(ValueError, match=message):
        make()(x, y, weight)
    structural = make(sentence_objective="structural")
    assert structural((["w1"], ["w2"]), [2])[1]["sentence"].numpy() == 2
