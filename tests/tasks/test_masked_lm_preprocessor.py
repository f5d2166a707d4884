import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.preprocessing.tokenizers import BertTokenizer
from keras_bertfam.tasks.masked_lm_preprocessor import MaskedLMPreprocessor

WORDS = [f"w{i}" for i in range(40)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


@pytest.fixture
def preprocessor():
    return MaskedLMPreprocessor(BertTokenizer(VOCABULARY), sequence_length=16, seed=3)


@pytest.fixture
def documents():
    rng = np.random.default_rng(0)
    texts = [
        "\n".join(" ".join(rng.choice(WORDS, 6)) for _ in range(5)) for _ in range(30)
    ]
    return tf.data.Dataset.from_tensor_slices(texts)


def stream(dataset):
    return [
        (x["token_ids"].numpy().tolist(), y.numpy().tolist()) for x, y, _ in dataset
    ]


def test_elements(preprocessor, documents):
    x, y, w = preprocessor.dataset(documents, 4).element_spec
    assert {k: (v.shape.as_list(), v.dtype.name) for k, v in x.items()} == {
        "token_ids": ([4, 16], "int32"),
        "padding_mask": ([4, 16], "bool"),
        "mask_positions": ([4, 2], "int32"),
    }
    assert (y.shape.as_list(), y.dtype.name) == ([4, 2], "int32")
    assert (w.shape.as_list(), w.dtype.name) == ([4, 2], "float32")


def test_resuming_gives_the_same_stream(preprocessor, documents):
    dataset = preprocessor.dataset(documents, 4)
    first, second = stream(dataset), stream(dataset)
    assert first != second and len(first) == len(second) > 5
    preprocessor.position.set(1, 3)
    assert stream(dataset) == second[3:]


def test_evaluation_is_frozen_and_complete(preprocessor, documents):
    dataset = preprocessor.dataset(documents, 4, training=False)
    assert stream(dataset) == stream(dataset)
    rows = sum(len(ids) for ids, _ in stream(dataset))
    assert rows == sum(1 for _ in preprocessor.pack(documents))


def test_static_masking_repeats(preprocessor, documents):
    dataset = preprocessor.dataset(documents, 4, duplicates=2)
    passes = [stream(dataset) for _ in range(3)]
    assert passes[0] == passes[2] != passes[1]


def test_encode(preprocessor):
    out = preprocessor.encode(["w0 [MASK] .", ""])
    assert out["token_ids"].numpy().tolist() == [[2, 5, 4, 1, 3], [2, 3, 0, 0, 0]]
    assert out["padding_mask"].numpy().sum(1).tolist() == [5, 2]
    assert preprocessor.encode("w0")["token_ids"].numpy().tolist() == [2, 5, 3]
    assert preprocessor.encode(["w0 " * 99], "max_length")["token_ids"].shape == (1, 16)


def test_call_is_a_function_of_its_input(preprocessor):
    texts = [" ".join(WORDS[:12]), "w1"]
    (x, y, w), again = preprocessor(texts), preprocessor(texts)
    assert (x["token_ids"].numpy() == again[0]["token_ids"].numpy()).all()
    assert w.numpy().tolist() == [[1, 1], [1, 0]]
    mapped = tf.data.Dataset.from_tensors(texts).map(preprocessor)
    assert stream(mapped) == stream([(x, y, w)])


def test_round_trip(preprocessor, tmp_path):
    preprocessor.save_to_preset(str(tmp_path))
    copy = keras.layers.deserialize(keras.layers.serialize(preprocessor))
    copy.load_preset_assets(str(tmp_path))
    assert copy.get_config() == preprocessor.get_config()
    assert copy.encode("w0")["token_ids"].numpy().tolist() == [2, 5, 3]


def test_errors(preprocessor, documents):
    with pytest.raises(ValueError, match="`sequence_length`.*2"):
        MaskedLMPreprocessor(BertTokenizer(VOCABULARY), sequence_length=2)
    with pytest.raises(ValueError, match="mask token.*object"):
        MaskedLMPreprocessor(object())
    with pytest.raises(ValueError, match="`batch_size`.*0"):
        preprocessor.dataset(documents, 0)
    with pytest.raises(ValueError, match="`packing`.*half"):
        preprocessor.pack(documents, "half")
