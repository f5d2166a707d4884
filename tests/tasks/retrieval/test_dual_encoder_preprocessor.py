import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import chisquare

from keras_bertfam.layers import BertTokenizer, read_tokens
from keras_bertfam.layers.data.pairs.passages import PAIRS, TitledRows
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.tasks import DualEncoderPreprocessor
from tests import every_task as every
from tests import tiny_corpus
from tests.marks import in_ci
from tests.tiny_masked_lm import SPECIALS as BERT_SPECIALS
from tests.tiny_masked_lm import WORDS as BERT_WORDS

WORDS = [f"w{i}" for i in range(60)]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
FIRST = len(SPECIALS)
SIDES = ("query", "passage")


def make(sequence_length=16, query_length=8, **kwargs):
    tokenizer = BertTokenizer([*SPECIALS, *WORDS])
    return DualEncoderPreprocessor(
        tokenizer, sequence_length, query_length, seed=3, **kwargs
    )


def dataset(preprocessor, texts, batch_size=1, **kwargs):
    documents = tf.data.Dataset.from_tensor_slices(texts)
    kwargs = {"break_lines": False, "shuffle_buffer": 0, **kwargs}
    return preprocessor.dataset(documents, batch_size, **kwargs)


def words(ids):
    """The numbers of the words of a row."""
    return [int(i) - FIRST for i in ids if i >= FIRST]


def pairs(batches):
    for x, _, _ in batches:
        both = (x[f"{side}_token_ids"].numpy() for side in SIDES)
        yield from ((words(q), words(p)) for q, p in zip(*both, strict=True))


def lines(*sentences):
    return "\n".join(" ".join(f"w{i}" for i in s) for s in sentences)


@pytest.mark.slow
def test_a_sentence_is_taken_out_of_its_block():
    # Blocks of 14 tokens: three sentences, then two, and one alone that is dropped.
    first = [[0, 1, 2, 3], [4, 5, 6, 7, 8], [9, 10], [11, 12, 13, 14], [15]]
    second = [[20, 21, 22, 23, 24, 25, 26], [27, 28, 29, 30, 31, 32, 33], [34, 35]]
    blocks = [sum(first[:3], []), sum(first[3:], []), sum(second[:2], [])]
    texts = [lines(*first), lines([50, 51]), lines(*second), ""]
    batches = [*dataset(make(mask_rate=1.0), texts, training=False)]
    found = [*pairs(batches)]
    sentences = [*first, *second]
    for (query, passage), block in zip(found, blocks, strict=True):
        assert query in [s[:6] for s in sentences]  # cut to eight with special ones
        whole = next(s for s in sentences if s[:6] == query)
        assert passage == [w for w in block if w not in whole]
    x, y, weight = batches[1]
    assert {name: value.shape for name, value in x.items()} == {
        f"{side}_{name}": (1, length)
        for side, length in (("query", 8), ("passage", 16))
        for name in ("token_ids", "segment_ids", "padding_mask")
    }
    assert y.numpy().tolist() == [0] and weight.numpy().tolist() == [1.0]
    (query,) = x["query_token_ids"].numpy()
    size = x["query_padding_mask"].numpy().sum()
    assert query[0] == 2 and query[size - 1] == 3 and not query[size:].any()


@pytest.mark.slow
def test_titles_begin_blocks_and_are_no_queries():
    texts = ["w50 w51\n" + lines([0, 1], [2, 3]), "w52\n" + lines([4], [5])]
    batches = dataset(make(titles=True, mask_rate=1.0), texts, 2, training=False)
    (x, _, _), *_ = batches
    for row, title in ((0, [50, 51]), (1, [52])):
        ids = x["passage_token_ids"].numpy()[row].tolist()
        end = 1 + len(title)
        assert words(ids[:end]) == title and ids[end] == 3
        segments = x["passage_segment_ids"].numpy()[row].tolist()
        size = int(x["passage_padding_mask"].numpy()[row].sum())
        expected = [0] * (end + 1) + [1] * (size - end - 1) + [0] * (16 - size)
        assert segments == expected
        assert not set(words(x["query_token_ids"].numpy()[row])) & set(title)
    # A title leaves less room, and takes half of a row at most.
    long = ["w50 " * 30 + "\n" + lines([0, 1, 2], [3, 4, 5], [6], [7])]
    (_, passage), *_ = pairs(dataset(make(titles=True, mask_rate=0.0), long))
    assert passage == [50] * 6 + [0, 1, 2, 3, 4, 5, 6]  # and whole, by mask_rate=0


@pytest.mark.slow
def test_rate_and_choice_are_as_published():
    """P(the query is still in its block) = .1, and each sentence is as likely."""
    texts = [lines(*([4 * k + i] for i in range(4))) for k in range(14)] * 120
    kept, places = 0, collections.Counter()
    for (query,), passage in pairs(dataset(make(), texts, 64)):
        kept += query in passage
        places[query % 4] += 1
    total = sum(places.values())
    assert total > 1600
    assert chisquare([kept, total - kept], [0.1 * total, 0.9 * total]).pvalue > 1e-3
    assert chisquare([places[i] for i in range(4)]).pvalue > 1e-3


@pytest.mark.slow
def test_crops_are_runs_of_a_block_with_tokens_left_out():
    """Rates are uniform in [.1, .5], and so are places; a tenth of tokens goes."""
    texts = [lines(range(40))] * 1500
    preprocessor = make(42, 42, pairs="crops", deletion_rate=0.0)
    sizes, overlaps, firsts = collections.Counter(), 0, collections.Counter()
    for both in pairs(dataset(preprocessor, texts, 50)):
        for crop in both:
            assert crop == [*range(crop[0], crop[0] + len(crop))]
            sizes[len(crop)] += 1
            firsts[crop[0] * 2 // (41 - len(crop))] += 1
        overlaps += bool({*both[0]} & {*both[1]})
    assert sorted(sizes) == [*range(4, 20)] and 0 < overlaps < 1500
    assert chisquare([*sizes.values()]).pvalue > 1e-3
    assert firsts[0] + firsts[1] == 3000 and abs(firsts[0] - 1500) < 250
    preprocessor = make(42, 42, pairs="crops", crop_rates=(0.5, 0.5))
    lengths = [len(x) for both in pairs(dataset(preprocessor, texts, 50)) for x in both]
    left = sum(lengths) / (20 * len(lengths))
    assert max(lengths) == 20 and abs(left - 0.9) < 0.005
    emptied = make(42, 42, pairs="crops", deletion_rate=1.0)
    assert all(len(q) == len(p) == 1 for q, p in pairs(dataset(emptied, texts[:9], 3)))


@pytest.mark.slow
def test_neighbours_are_a_block_in_two():
    sentences = [[4 * i + k for k in range(4)] for i in range(4)]
    texts = [lines(*sentences), lines([50])] * 300
    queries = collections.Counter()
    for query, passage in pairs(dataset(make(18, 18, pairs="neighbours"), texts, 10)):
        assert query + passage == sum(sentences, []) and query and passage
        queries[len(query)] += 1
    assert (
        sorted(queries) == [4, 8, 12] and chisquare([*queries.values()]).pvalue > 1e-3
    )


@pytest.mark.slow
def test_titles_are_queries():
    texts = ["w50 w51\n" + lines([0, 1], [2, 3]), lines([4], [5]), "w52", "\nw6 w7"]
    found = [*pairs(dataset(make(pairs="titles"), texts, training=False))]
    assert found == [([50, 51], [0, 1, 2, 3]), ([4], [5])]
    # A title that is a query fills its row, and takes nothing of the passage's.
    long = ["w50 " * 30 + "\n" + lines(range(7), range(7, 14))]
    ((query, passage),) = pairs(dataset(make(pairs="titles"), long, training=False))
    assert query == [50] * 6 and passage == [*range(14)]


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", in_ci(every.KINDS, "bert", "gpt2", "t5"))
def test_any_tokenizer(tokenizer):
    """Rows have their family's special tokens, and text between them."""
    documents = tf.data.Dataset.from_tensor_slices(["\n".join(every.TEXTS)] * 3)
    for kind in PAIRS:
        preprocessor = DualEncoderPreprocessor(
            every.tokenizer_of(tokenizer), 96, 96, pairs=kind
        )
        data = preprocessor.dataset(documents, 2, training=False)
        x, _, weight = next(iter(data))
        assert weight.numpy().all()
        for side in SIDES:
            ids, inside = (
                x[f"{side}_{n}"].numpy() for n in ("token_ids", "padding_mask")
            )
            layout = preprocessor.rows_of(side).layout
            assert (inside.sum(1) > layout.specials(1)).all()
            assert (ids[~inside] == preprocessor.tokenizer.pad_token_id).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAIRS)
def test_passes_differ_and_are_resumed(kind):
    texts = [lines(*([4 * k + i] for i in range(4))) for k in range(14)]
    preprocessor = make(documents_at_once=3, pairs=kind)
    batches = dataset(preprocessor, texts, 3, shuffle_buffer=20)
    first, second = [*pairs(batches)], [*pairs(batches)]
    assert first != second and len(first) == len(second) == 12
    preprocessor.position.set(1, 2)
    assert [*pairs(batches)] == second[6:]
    packed = preprocessor.pack(tf.data.Dataset.from_tensor_slices(texts), None, False)
    preprocessor.position.set(0)
    assert [*pairs(preprocessor.dataset(packed, 3, shuffle_buffer=20))] == first


@pytest.mark.slow
def test_prepared_corpora(tmp_path):
    tokenizer = BertTokenizer([*BERT_SPECIALS, *BERT_WORDS], lowercase=True)
    preprocessor = DualEncoderPreprocessor(tokenizer, 16, 8, mask_rate=1.0)
    corpus = read_tokens(tiny_corpus.prepare(tmp_path / "prepared", tokenizer))
    single, rows = 0, 0
    for x, _, weight in preprocessor.dataset(corpus, 8):
        sizes = x["passage_padding_mask"].numpy().sum(1)
        assert ((sizes == 2) <= (weight.numpy() == 0)).all()
        single, rows = single + (weight.numpy() == 0).sum(), rows + len(sizes)
    assert 0 < single < rows / 2
    for settings in ({"titles": True}, {"pairs": "titles"}):
        with pytest.raises(ValueError, match="`titles` must be `False`.*prepared cor"):
            DualEncoderPreprocessor(tokenizer, 16, **settings).dataset(corpus, 8)
    for kind in ("crops", "neighbours"):
        preprocessor = DualEncoderPreprocessor(tokenizer, 16, 16, pairs=kind)
        for x, _, weight in preprocessor.dataset(corpus, 8).take(3):
            both = [x[f"{side}_padding_mask"].numpy().sum(1) > 2 for side in SIDES]
            assert (weight.numpy() <= both[0] & both[1]).all() and weight.numpy().any()


def _first(given):
    return {name: value[0] for name, value in given.items()}


@pytest.mark.slow
def test_calls_on_pairs():
    preprocessor = make()
    x, y, weight = preprocessor((["w1", "w2 " * 9], ["w3", "w4 " * 20]), None, [2, 0.5])
    assert words(x["query_token_ids"].numpy()[1]) == [2] * 6
    assert words(x["passage_token_ids"].numpy()[1]) == [4] * 14
    assert y.numpy().tolist() == [0, 0] and weight.numpy().tolist() == [2.0, 0.5]
    given = {
        "query": ["w1", "w2"],
        "passage": [["w3", "w4"], ["w5", "w6"]],
        "title": [["w7", ""], ["", "w8"]],
    }
    x, _, _ = preprocessor(given)
    ids = x["passage_token_ids"].numpy()
    assert ids.shape == (2, 2, 8)  # as long as the longest, by a bucket
    full, _, _ = make(buckets=[])(given)
    two = tf.data.Dataset.from_tensors((["w1", "w2"], ["w4", "w5"]))
    spec, _, _ = two.map(lambda *x: make(buckets=[])(x, None)).element_spec
    assert spec["passage_token_ids"].shape[1] == 16  # static, for one compilation
    np.testing.assert_array_equal(full["passage_token_ids"].numpy()[..., :8], ids)
    columns = (["w1", "w2"], ["w3", "w5"], ["w4", "w6"])  # as `mine_negatives` gives
    del given["title"]
    for one, other in ((columns, given), ([c[0] for c in columns], _first(given))):
        one, other = preprocessor(tuple(one), None)[0], preprocessor(other)[0]
        for name, value in other.items():
            np.testing.assert_array_equal(one[name].numpy(), value.numpy())
    single, _, _ = preprocessor(_first(given))
    for rows, shape in ((full, (2, 2)), (single, (2,))):
        assert rows["passage_token_ids"].shape == (*shape, 16)
        assert rows["query_token_ids"].shape[-1] == 8
    assert [words(row) for row in ids[0]] == [[7, 3], [4]]
    plain, _, _ = preprocessor((["w1", "w2"], ["w4", "w5"]), None)
    np.testing.assert_array_equal(ids[0, 1], plain["passage_token_ids"].numpy()[0])
    # A text without a title is laid out as any other row.
    assert x["passage_segment_ids"].numpy()[0, 1].tolist() == [0] * 8


@pytest.mark.slow
def test_configuration_and_errors():
    preprocessor = make(titles=True, mask_rate=0.5)
    copy = keras.layers.deserialize(keras.layers.serialize(preprocessor))
    assert copy.get_config() == preprocessor.get_config()
    for arguments, message in (
        ({"mask_rate": 1.5}, r"`mask_rate` must be .*Received: 1.5"),
        ({"query_length": 2}, "`query_length` must be at least 3. Received: 2"),
        ({"documents_at_once": 0}, "`documents_at_once`.*0"),
        ({"buckets": [17]}, "`buckets` must be lengths from 1 to sequence_length=16"),
        ({"buckets": [8.5]}, "`buckets` must be lengths from 1 to sequence_length=16"),
        ({"buckets": 8}, "`buckets` must be several lengths. Received: 8"),
        ({"pairs": "spans"}, r"`pairs` must be .*'crops'.*Received: 'spans'"),
        (
            {"pairs": "crops", "mask_rate": 0.5},
            "`mask_rate` must be `None` with pairs=",
        ),
        ({"deletion_rate": 0.5}, "`deletion_rate` must be `None` with pairs="),
        ({"pairs": "crops", "deletion_rate": 2.0}, r"`deletion_rate` must be .*2.0"),
        ({"pairs": "crops", "crop_rates": (0.5, 0.1)}, "`crop_rates` must be two"),
        ({"pairs": "crops", "crop_rates": (0.0, 0.1)}, "`crop_rates` must be two"),
        ({"pairs": "titles", "titles": True}, "`titles` must be `False` with pairs"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**arguments)
    for wrong in (0.5, ("a", "b"), [0.1, 0.2, 0.3]):
        with pytest.raises(ValueError, match="`crop_rates` must be two"):
            make(pairs="crops", crop_rates=wrong)
    # What a preset has saved is no hindrance to another way.
    saved = make().get_config()
    other = DualEncoderPreprocessor.from_config({**saved, "pairs": "crops"})
    assert (other.mask_rate, other.deletion_rate) == (None, 0.1)
    other = DualEncoderPreprocessor.from_config({**saved, "mask_rate": None})
    assert other.get_config() == saved and other.mask_rate == 0.9
    assert make().count_shapes() == 2 and make(buckets=[]).count_shapes() == 1
    crops = make(pairs="crops", crop_rates=(0.2, 0.3))
    copy = keras.layers.deserialize(keras.layers.serialize(crops))
    assert copy.get_config() == crops.get_config()
    assert (copy.crop_rates, copy.deletion_rate) == ((0.2, 0.3), 0.1)
    for x, message in (
        (["w1"], "tuple of queries and passages.*documents to `dataset`.*list"),
        ({"query": ["w1"]}, r"Received: \['query'\]"),
        ((["w1"], ["w2", "w3"]), "a query for each passage"),
        ((["w1"], "w2"), "`passage` must be strings of rank 1 or 2"),
        (([1], ["w2"]), "`query` must be strings"),
    ):
        with pytest.raises(ValueError, match=message):
            preprocessor(x, None)
    with pytest.raises(ValueError, match="`y` must be None"):
        preprocessor((["w1"], ["w2"]), [1])
    error = tf.errors.InvalidArgumentError
    with pytest.raises(error, match="documents of more than one sentence"):
        for _ in dataset(preprocessor, ["w1", "w2"]):
            pass


@pytest.mark.parametrize(
    ("family", "ids", "segments"),
    [
        ("roberta", [2, 9, 3, 3, 7, 8, 3], [0, 0, 0, 0, 1, 1, 1]),
        ("xlnet", [9, 3, 7, 8, 3, 2], [0, 0, 1, 1, 1, 2]),
    ],
)
def test_layouts_of_other_families(family, ids, segments):
    tokenizer = BertTokenizer([*SPECIALS, *WORDS])
    rows = TitledRows(tokenizer, FAMILIES[family].layout, 8)
    texts, titles = (tf.ragged.constant(x) for x in ([[7, 8], [7]], [[9], []]))
    out = rows(texts, tf.cast(titles, tf.int32))
    size = len(ids)
    assert out["token_ids"].numpy()[0].tolist() == ids + [0] * (8 - size)
    assert out["segment_ids"].numpy()[0].tolist() == segments + [0] * (8 - size)
    assert out["padding_mask"].numpy().sum(1).tolist() == [size, 3]
    np.testing.assert_array_equal(out["token_ids"][1:], rows(texts[1:])["token_ids"])
