import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_bertfam.layers import BertTokenizer, XLNetTokenizer
from keras_bertfam.layers.data.streams.parallel_streams import (
    ParallelStreams,
    join_segments,
)
from keras_bertfam.tasks import PermutationLMPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import document_end_id, word_start_table
from tests.tiny_sentence_piece import train_sentence_piece

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{i}" for i in range(200)]
CLS, SEP = 2, 3


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer([*SPECIALS, "##s", *WORDS])


def texts(count, seed=0):
    """Documents of sentences of three words, each document numbered by its words."""
    rng = np.random.default_rng(seed)
    return [
        "\n".join(" ".join(rng.choice(WORDS, 3)) for _ in range(rng.integers(2, 12)))
        for _ in range(count)
    ]


def ids_of(tokenizer, text):
    return [tokenizer.token_to_id(word) for word in text.split()] + [SEP]


def run(tokenizer, documents, **kwargs):
    settings = {"batch_size": 4, "window": 12, "advance": 5, "end_token_id": SEP}
    streams = ParallelStreams(
        tokenizer, break_lines=False, documents_at_once=7, **{**settings, **kwargs}
    )
    dataset = tf.data.Dataset.from_tensor_slices(documents).apply(streams)
    return [{k: v.numpy() for k, v in batch.items()} for batch in dataset]


def stitch(batches, row, advance=5):
    parts = [batch["token_ids"][row, :advance] for batch in batches]
    return [*np.concatenate(parts), *batches[-1]["token_ids"][row, advance:]]


@pytest.mark.slow
def test_rows_continue_and_hold_whole_documents(tokenizer):
    documents = texts(60)
    batches = run(tokenizer, documents)
    assert len(batches) > 20
    expected = {tuple(ids_of(tokenizer, text)) for text in documents}
    seen = set()
    for row in range(4):
        for batch, following in zip(batches, batches[1:], strict=False):
            np.testing.assert_array_equal(
                batch["token_ids"][row, 5:], following["token_ids"][row, :7]
            )
        stream = stitch(batches, row)
        ends = np.flatnonzero(np.array(stream) == SEP)
        begin = 0
        for end in ends:
            document = tuple(stream[begin : end + 1])
            assert document in expected
            seen.add(document)
            begin = end + 1
    assert len(seen) >= 50  # but the ends of the streams
    assert [b["continues"].all() for b in batches] == [False] + [True] * (
        len(batches) - 1
    )
    assert not batches[0]["continues"].any()
    assert not any(batch["reversed_rows"].any() for batch in batches)


@pytest.mark.slow
def test_sentence_starts(tokenizer):
    batches = run(tokenizer, texts(60), both_directions=True)
    for batch in batches:
        for ids, starts in zip(
            batch["token_ids"], batch["starts_sentence"], strict=True
        ):
            at = np.flatnonzero(starts)
            for one, other in zip(at, at[1:], strict=False):
                ends = (ids[one:other] == SEP).sum()
                assert other - one == 3 + ends  # sentences of three words
            assert not starts[ids == SEP].any()


@pytest.mark.slow
def test_both_directions(tokenizer):
    documents = texts(60)
    batches = run(tokenizer, documents, both_directions=True)
    expected = {tuple(ids_of(tokenizer, text)) for text in documents}
    for row in (0, 1):
        forwards, backwards = stitch(batches, row), stitch(batches, row + 2)
        ends = np.flatnonzero(np.array(forwards) == SEP)
        begin = 0
        for end in ends:
            document = tuple(forwards[begin : end + 1])
            assert document in expected
            assert backwards[begin : end + 1] == [*document][::-1]
            begin = end + 1
    np.testing.assert_array_equal(batches[0]["reversed_rows"], [0, 0, 1, 1])
    with pytest.raises(ValueError, match="even.*batch_size=3"):
        run(tokenizer, documents, both_directions=True, batch_size=3)


def join(next_rate, rows=400, reused=4, length=10, reversed_from=None):
    """Windows of running numbers, a sentence of three tokens after another."""
    reversed_from = rows if reversed_from is None else reversed_from
    number = np.arange(rows)[:, None]
    ids = 1000 * (number + 1) + np.arange(reused + length)
    starts = (np.arange(reused + length) + number) % 3 == 0
    batch = {
        "token_ids": tf.constant(ids, tf.int32),
        "starts_sentence": tf.constant(starts),
        "reversed_rows": tf.constant(np.arange(rows) >= reversed_from),
    }
    out = join_segments(batch, reused, CLS, SEP, next_rate, np.array([1, 2]))
    return ids, starts, {name: x.numpy() for name, x in out.items()}


def test_layout_of_consecutive_segments():
    ids, starts, out = join(next_rate=1.0)
    rows, segments = out["token_ids"], out["segment_ids"]
    assert rows.shape == (400, 17)
    cuts = []
    for row, segment, before, start in zip(rows, segments, ids, starts, strict=True):
        np.testing.assert_array_equal(row[-2:], [SEP, CLS])
        cut = np.flatnonzero(row == SEP)[0]
        np.testing.assert_array_equal(row[:cut], before[:cut])
        np.testing.assert_array_equal(row[cut + 1 : -2], before[cut:])
        assert start[cut] and 4 < cut < 14
        np.testing.assert_array_equal(
            segment, [0] * (cut + 1) + [1] * (17 - cut - 2) + [2]
        )
        cuts.append(cut)
    # Rows 0, 3, 6, ... may be cut at 6, 9 or 12, each as likely.
    counts = [np.sum(np.array(cuts[::3]) == at) for at in (6, 9, 12)]
    assert sum(counts) == len(cuts[::3]) and stats.chisquare(counts).pvalue > 1e-3


def test_layout_of_segments_from_elsewhere():
    ids, starts, out = join(next_rate=0.0, reversed_from=200)
    others = []
    for number, row in enumerate(out["token_ids"]):
        cut = np.flatnonzero(row == SEP)[0]
        second = row[cut + 1 : -2]
        other, begin = second[0] // 1000 - 1, second[0] % 1000
        np.testing.assert_array_equal(second, ids[other, begin : begin + len(second)])
        assert other != number and (other >= 200) == (number >= 200)
        assert begin >= 4 and starts[other, begin] or begin == 4
        others.append((other - number) % 200)
    assert len({*others}) == 1 or len({*others}) > 50
    follows = np.mean(
        [
            row[np.flatnonzero(row == SEP)[0] + 1] // 1000 == number + 1
            for number, row in enumerate(join(next_rate=0.5)[2]["token_ids"])
        ]
    )
    assert stats.binomtest(round(follows * 400), 400, 0.5).pvalue > 1e-3


def make_preprocessor(tokenizer, **kwargs):
    settings = {"sequence_length": 24, "reuse_length": 12, **kwargs}
    return PermutationLMPreprocessor(tokenizer, **settings)


def passes(preprocessor, count=1, **kwargs):
    documents = tf.data.Dataset.from_tensor_slices(texts(80))
    data = preprocessor.dataset(documents, batch_size=4, **kwargs)
    return [[*data.as_numpy_iterator()] for _ in range(count)]


def assert_same(one, other):
    for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_batches(tokenizer):
    (batches,) = passes(make_preprocessor(tokenizer, both_directions=True))
    assert len(batches) > 10
    for number, (x, y, weights) in enumerate(batches):
        assert x["token_ids"].shape == (4, 24) and y.shape == (4, 4)
        assert weights.min() == 1 and x["padding_mask"].all()
        np.testing.assert_array_equal(
            y, np.take_along_axis(x["token_ids"], x["mask_positions"], 1)
        )
        assert not np.isin(y, [CLS, SEP]).any()
        assert x["continues"].all() == (number > 0)
        np.testing.assert_array_equal(x["reversed_rows"], [0, 0, 1, 1])
    for (x, *_), (following, *_) in zip(batches, batches[1:], strict=False):
        # What follows the reused tokens as A is reused next.
        reused = following["token_ids"][:, :12]
        for row in range(4):
            cut = np.flatnonzero(x["segment_ids"][row] == 1)[0] - 1
            np.testing.assert_array_equal(
                reused[row, : cut - 12], x["token_ids"][row, 12:cut]
            )


@pytest.mark.slow
def test_passes_differ_and_are_reproducible(tokenizer):
    preprocessor = make_preprocessor(tokenizer)
    first, second = passes(preprocessor, 2)
    assert first[0][0]["perm_ranks"].tolist() != second[0][0]["perm_ranks"].tolist()
    again = make_preprocessor(tokenizer)
    again.position.set(epoch=1, batch=3)
    assert_same(passes(again)[0], second[3:])
    evaluation = passes(make_preprocessor(tokenizer), 2, training=False)
    assert_same(*evaluation)


@pytest.mark.slow
def test_strings(tokenizer):
    preprocessor = make_preprocessor(tokenizer)
    x, y, weights = preprocessor(["w1 w2 w3", " ".join(WORDS)])
    ids = x["token_ids"].numpy()
    w1 = tokenizer.token_to_id("w1")
    np.testing.assert_array_equal(ids[0], [0] * 19 + [w1, w1 + 1, w1 + 2, SEP, CLS])
    np.testing.assert_array_equal(ids[1, -2:], [SEP, CLS])
    np.testing.assert_array_equal(x["padding_mask"], ids != 0)
    np.testing.assert_array_equal(x["segment_ids"][1], [0] * 23 + [2])
    np.testing.assert_array_equal(weights.numpy().sum(axis=1), [1, 4])
    encoded = preprocessor.encode(["w1", "w1 w2"])
    np.testing.assert_array_equal(
        encoded["token_ids"], [[0, w1, SEP, CLS], [w1, w1 + 1, SEP, CLS]]
    )


@pytest.mark.slow
def test_preprocessor_config_and_errors(tokenizer):
    preprocessor = make_preprocessor(tokenizer, perm_size=6)
    again = PermutationLMPreprocessor.from_config(preprocessor.get_config())
    assert again.get_config() == preprocessor.get_config()
    documents = tf.data.Dataset.from_tensor_slices(texts(3))
    with pytest.raises(ValueError, match="2 streams.*batch_size=1"):
        preprocessor.dataset(documents, batch_size=1)
    with pytest.raises(ValueError, match="sequence_length=24.*Received: 20"):
        make_preprocessor(tokenizer, reuse_length=20)
    with pytest.raises(ValueError, match="next_rate.*Received: 2"):
        make_preprocessor(tokenizer, next_rate=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least one batch"):
        next(iter(preprocessor.dataset(documents, batch_size=64)))


@pytest.mark.slow
def test_documents_end_with_eod_where_there_is_one():
    model = train_sentence_piece(["a b c d e"] * 4, ["<eod>"], vocab_size=20)
    tokenizer = XLNetTokenizer(model)
    preprocessor = make_preprocessor(tokenizer, next_rate=1.0)
    documents = tf.data.Dataset.from_tensor_slices(["a b c", "d e a b"] * 30)
    x, _, _ = next(iter(preprocessor.dataset(documents, 2)))
    ids = x["token_ids"].numpy()
    eod = tokenizer.token_to_id("<eod>")
    # Two of A and B, and as many as documents end: never the one for the other.
    assert (ids == tokenizer.end_token_id).sum(1).tolist() == [2, 2]
    assert (ids == eod).any(1).all()
    assert word_start_table(tokenizer)[eod]
    assert document_end_id(tokenizer) == eod
