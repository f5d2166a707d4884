import json
import os
import subprocess
import sys

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.data.documents.reading import read_documents
from keras_bertfam.tasks.masking.masked_lm_preprocessor import (
    MaskedLMPreprocessor,
)
from keras_bertfam.tokenizers.word_piece import BertTokenizer
from tests.checkout import ROOT

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


@pytest.mark.slow
def test_elements(preprocessor, documents):
    x, y, w = preprocessor.dataset(documents, 4).element_spec
    assert {k: (v.shape.as_list(), v.dtype.name) for k, v in x.items()} == {
        "token_ids": ([4, 16], "int32"),
        "padding_mask": ([4, 16], "bool"),
        "mask_positions": ([4, 2], "int32"),
    }
    assert (y.shape.as_list(), y.dtype.name) == ([4, 2], "int32")
    assert (w.shape.as_list(), w.dtype.name) == ([4, 2], "float32")


@pytest.mark.slow
def test_resuming_gives_the_same_stream(preprocessor, documents):
    dataset = preprocessor.dataset(documents, 4)
    first, second = stream(dataset), stream(dataset)
    assert first != second and len(first) == len(second) > 5
    preprocessor.position.set(1, 3)
    assert stream(dataset) == second[3:]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 3])
def test_the_stream_is_the_same_at_any_parallelism(preprocessor, documents, threads):
    dataset = preprocessor.dataset(documents, 4)
    expected = stream(dataset)
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.autotune.enabled = False
    preprocessor.position.set(0)
    assert stream(dataset.with_options(options)) == expected


@pytest.mark.slow
def test_evaluation_is_frozen_and_complete(preprocessor, documents):
    dataset = preprocessor.dataset(documents, 4, training=False)
    assert stream(dataset) == stream(dataset)
    rows = sum(len(ids) for ids, _ in stream(dataset))
    assert rows == sum(1 for _ in preprocessor.pack(documents))


@pytest.mark.slow
def test_static_masking_repeats(preprocessor, documents):
    dataset = preprocessor.dataset(documents, 4, duplicates=2)
    passes = [stream(dataset) for _ in range(3)]
    assert passes[0] == passes[2] != passes[1]


@pytest.mark.slow
def test_odd_documents(preprocessor, tmp_path):
    """Empty and one-token documents, bad bytes, CRLF, no line end at the end."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"w1 w2\r\nw3\r\n\r\n\r\nw4\n\n\xc2\xa0\n\n \t \n\nw5")
    strings = [b"\xff", b"\xc3\x28 w6", "", " \n \n", "w7"]
    documents = read_documents([path]).concatenate(
        tf.data.Dataset.from_tensor_slices([*strings, b"\xf0\x9f", b"w8\0 w\0009\r\n"])
    )
    blocks = list(preprocessor.pack(documents))
    ids = np.concatenate([b["token_ids"][b["padding_mask"]] for b in blocks])
    texts = [t for t in ids if t not in (1, 2, 3)]  # [UNK] [CLS] [SEP]
    assert texts == [5 + i for i in range(1, 10)]
    assert (ids == 1).sum() == 1  # "(": BERT drops what is no UTF-8
    ((x, y, w),) = preprocessor.dataset(documents, len(blocks))
    originals = x["token_ids"].numpy()
    full = w.numpy() == 1
    np.put_along_axis(
        originals,
        np.where(full, x["mask_positions"], 0),
        np.where(full, y, preprocessor.tokenizer.cls_token_id),
        1,
    )
    expected = {tuple(b["token_ids"].numpy()) for b in blocks}
    assert set(map(tuple, originals)) == expected


@pytest.mark.slow
def test_a_line_of_a_megabyte(preprocessor):
    documents = tf.data.Dataset.from_tensors("w1 w2 " * 200_000)
    for break_lines in (False, True):
        blocks = preprocessor.pack(documents, break_lines=break_lines).batch(10**6)
        ids = next(iter(blocks))["token_ids"].numpy()
        assert (ids[:-1, 1:-1].ravel()[:4] == [6, 7, 6, 7]).all()
        assert (ids >= 5).sum() == 400_000


@pytest.mark.slow
def test_nothing_and_too_little(preprocessor, documents):
    nothing = tf.data.Dataset.from_tensor_slices(["", "\n"])
    for dataset in (
        preprocessor.dataset(nothing, 1),
        preprocessor.dataset(nothing, 1, training=False),
        preprocessor.dataset(documents, 400),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="one batch: .*size="):
            stream(dataset)
    assert list(preprocessor.pack(nothing)) == []


@pytest.mark.slow
def test_fit(make_model, texts):
    model = make_model()
    model.compile()
    dataset = model.preprocessor.dataset(
        tf.data.Dataset.from_tensor_slices(texts), batch_size=4
    )
    losses = model.fit(dataset, epochs=2, verbose=0).history["loss"]
    assert len(losses) == 2 and np.isfinite(losses).all()
    assert model.preprocessor.position.epoch >= 2


REPLICAS = """
import json, sys
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
devices = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, devices)
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.tasks import MaskedLMPreprocessor

words = [f"w{i}" for i in range(40)]
tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
preprocessor = MaskedLMPreprocessor(tokenizer, sequence_length=16, seed=3)
documents = tf.data.Dataset.from_tensor_slices(json.loads(sys.argv[1]))
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
dataset = preprocessor.dataset(documents, 4)
out = []
for x, y, w in strategy.experimental_distribute_dataset(dataset):
    replicas = [strategy.experimental_local_results(v) for v in (x["token_ids"], y)]
    assert [len(r) for r in replicas[0]] == [2, 2]
    out.append([tf.concat(r, 0).numpy().tolist() for r in replicas])
print(json.dumps(out))
"""


@pytest.mark.slow
def test_replicas_share_the_batches(preprocessor, documents):
    texts = [d.numpy().decode() for d in documents]
    done = subprocess.run(
        [sys.executable, "-c", REPLICAS, json.dumps(texts)],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    got = [tuple(batch) for batch in json.loads(done.stdout.splitlines()[-1])]
    assert got == stream(preprocessor.dataset(documents, 4))


def tiny_roberta():
    tokens = [
        "<s>",
        "<pad>",
        "</s>",
        "<mask>",
        *"seacalm",
        ".",
        "Ġ",
        "Ġsea",
        "se",
        "sea",
    ]
    tokens = list(dict.fromkeys(tokens))
    return keras_hub.tokenizers.RobertaTokenizer(
        {t: i for i, t in enumerate(tokens)}, ["s e", "se a", "Ġ sea"]
    )


@pytest.mark.slow
def test_encode_with_the_mask_of_roberta():
    tokenizer = tiny_roberta()
    preprocessor = MaskedLMPreprocessor(tokenizer, sequence_length=16)
    texts = ["<mask> sea sea", "sea <mask>.", "sea<mask>."]
    batch = preprocessor.encode(texts)["token_ids"].numpy().tolist()
    assert batch[0] == [0, 3, *[tokenizer.token_to_id("Ġsea")] * 2, 2]
    expected = ["<s>", "sea", "<mask>", ".", "</s>"]
    for row in batch[1:]:
        assert [tokenizer.id_to_token(i) for i in row] == expected
    assert preprocessor.encode(texts[1])["token_ids"].numpy().tolist() == batch[1]


@pytest.mark.slow
@pytest.mark.data
def test_encode_with_the_vocabulary_of_roberta(data_dir):
    folder = data_dir / "tokenizers" / "roberta"
    tokenizer = keras_hub.tokenizers.RobertaTokenizer(
        str(folder / "vocab.json"), str(folder / "merges.txt")
    )
    preprocessor = MaskedLMPreprocessor(tokenizer, sequence_length=16)
    hello = [31414, 6, 127, 2335, 16, 11962]
    mask = tokenizer.mask_token_id
    texts = ["Hello, my dog is cute", "Hello, my <mask> is cute", "<mask>"]
    assert preprocessor.encode(texts)["token_ids"].numpy().tolist() == [
        [0, *hello, 2],
        [0, *hello[:3], mask, *hello[4:], 2],
        [0, mask, 2, 1, 1, 1, 1, 1],
    ]
    words = MaskedLMPreprocessor(tokenizer, sequence_length=16, strategy="words")
    x, y, w = words(texts[0])
    assert w.numpy().sum() == 1 and mask == 50264


def test_encode(preprocessor):
    out = preprocessor.encode(["w0 [MASK] .", ""])
    assert out["token_ids"].numpy().tolist() == [[2, 5, 4, 1, 3], [2, 3, 0, 0, 0]]
    assert out["padding_mask"].numpy().sum(1).tolist() == [5, 2]
    assert preprocessor.encode("w0")["token_ids"].numpy().tolist() == [2, 5, 3]
    assert preprocessor.encode(["w0 " * 99], "max_length")["token_ids"].shape == (1, 16)


@pytest.mark.slow
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
    with pytest.raises(ValueError, match="must be a tokenizer layer.*<object"):
        MaskedLMPreprocessor(object())
    tokens = {"<|endoftext|>": 0, "a": 1, "b": 2, "ab": 3}
    without_mask = keras_hub.tokenizers.GPT2Tokenizer(tokens, ["a b"])
    with pytest.raises(ValueError, match="mask token.*GPT2Tokenizer"):
        MaskedLMPreprocessor(without_mask)
    with pytest.raises(ValueError, match="`batch_size`.*0"):
        preprocessor.dataset(documents, 0)
    with pytest.raises(ValueError, match="`packing`.*half"):
        preprocessor.pack(documents, "half")
    with pytest.raises(ValueError, match="`sample_weight` must be None"):
        preprocessor(["w0"], None, [1.0])
