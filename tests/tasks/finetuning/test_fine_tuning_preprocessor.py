import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.layers.data.pairs.segments import lay_out, truncate_pair
from keras_bertfam.layers.data.rows.batches import length_buckets
from keras_bertfam.tasks import TextClassifierPreprocessor, TextRegressorPreprocessor
from keras_bertfam.tasks.finetuning.fine_tuning_preprocessor import (
    FineTuningPreprocessor,
)
from tests import every_task as every
from tests import tiny_fine_tuning as tiny

CLS, SEP = 2, 3


def every_preprocessor():
    """List the public classes of preprocessors of fine-tuning."""
    found = [getattr(tasks, name) for name in dir(tasks)]
    classes = [each for each in found if isinstance(each, type)]
    return [each for each in classes if issubclass(each, FineTuningPreprocessor)]


TRUNCATING = [
    cls
    for cls in every_preprocessor()
    if len(cls.truncations) > 1 and "Elmo" not in cls.__name__
]


def make(**kwargs):
    return TextClassifierPreprocessor(tiny.make_tokenizer(), 16, **kwargs)


def rows(x):
    """The unpadded ids of each row, and their segments."""
    lengths = x["padding_mask"].numpy().sum(1)
    ids, segments = x["token_ids"].numpy(), x["segment_ids"].numpy()
    return [
        (i[:n].tolist(), s[:n].tolist())
        for i, s, n in zip(ids, segments, lengths, strict=True)
    ]


@pytest.mark.slow
def test_layouts_of_the_families():
    ids = {word: tiny.make_tokenizer().token_to_id(word) for word in ("the", "cat")}
    the, cat = ids["the"], ids["cat"]
    expected = {
        "bert": ([CLS, the, SEP, cat, SEP], [0, 0, 0, 1, 1]),
        "roberta": ([CLS, the, SEP, SEP, cat, SEP], [0, 0, 0, 0, 1, 1]),
        "xlnet": ([the, SEP, cat, SEP, CLS], [0, 0, 1, 1, 2]),
    }
    for layout, row in expected.items():
        assert rows(make(layout=layout)((["the"], ["cat"]), None)) == [row]
        assert rows(make(layout=layout)([("the", "cat")])) == [row]
    single = {"bert": [CLS, the, SEP], "xlnet": [the, SEP, CLS]}
    for layout, row in single.items():
        assert rows(make(layout=layout)(["the"]))[0][0] == row


@pytest.mark.parametrize(
    "first, second, sizes",
    [(10, 10, (7, 6)), (3, 20, (3, 10)), (20, 3, (10, 3)), (12, 5, (8, 5))],
)
def test_pairs_lose_the_end_of_the_longer_text(first, second, sizes):
    parts = [tf.ragged.range([n]) for n in (first, second)]
    cut = truncate_pair(parts, 13)
    for part, size in zip(cut, sizes, strict=True):
        assert part.to_list() == [list(range(size))]
    assert set(lay_out(cut, tiny.make_tokenizer(), make()._layout)) == {
        "token_ids",
        "segment_ids",
    }


@pytest.mark.parametrize(
    ("where", "alone", "both"),
    [
        ("end", [0, 1, 2, 3, 4], ([0, 1, 2], [0, 1])),
        ("start", [4, 5, 6, 7, 8], ([6, 7, 8], [2, 3])),
        ("middle", [0, 1, 2, 7, 8], ([0, 1, 8], [0, 3])),
    ],
)
def test_what_a_text_loses(where, alone, both):
    long, short, none = (tf.ragged.range([n]) for n in (9, 4, 0))
    assert truncate_pair([long], 5, where)[0].to_list() == [alone]
    cut = truncate_pair([long, short], 5, where)
    assert [part.to_list() for part in cut] == [[row] for row in both]
    for whole in (short, none):
        assert truncate_pair([whole], 5, where)[0].to_list() == whole.to_list()
        assert truncate_pair([whole], 4, where)[0].to_list() == whole.to_list()


@pytest.mark.parametrize("cls", TRUNCATING)
@pytest.mark.parametrize("where", ["start", "middle"])
def test_rows_keep_special_tokens_wherever_texts_are_cut(cls, where):
    words = "the cat sat on a mat".split()
    known = tiny.make_tokenizer()
    ids = known(" ".join(words)).numpy().tolist()
    preprocessor = cls(known, 6, truncate=where)
    kept = ids[-4:] if where == "start" else ids[:2] + ids[-2:]
    text = " ".join(words)
    assert rows(preprocessor([text]))[0][0] == [CLS, *kept, SEP]
    assert cls.from_config(preprocessor.get_config()).truncate == where
    data = tf.data.Dataset.from_tensors([text]).map(preprocessor)
    assert rows(next(iter(data)))[0][0] == [CLS, *kept, SEP]


def test_who_cuts_ends_alone_says_so():
    for cls in every_preprocessor():
        if cls.truncations == ("end",) and "Elmo" not in cls.__name__:
            with pytest.raises(ValueError, match="`truncate` must be.*'start'"):
                cls(tiny.make_tokenizer(), truncate="start")
    with pytest.raises(ValueError, match="`truncate` must be one of.*'sides'"):
        make(truncate="sides")


@pytest.mark.slow
def test_rows_are_padded_to_few_lengths():
    preprocessor = make()
    for words, length in ((1, 8), (6, 8), (7, 12), (10, 12), (11, 16), (50, 16)):
        assert preprocessor([" ".join(["a"] * words)])["token_ids"].shape == (1, length)
    fixed = make(buckets=(16,))
    assert fixed(["a"])["token_ids"].shape == (1, 16)
    assert length_buckets(None, 200) == [8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 200]
    with pytest.raises(ValueError, match="sequence_length=16.*20"):
        make(buckets=(8, 20))


def test_a_single_text_has_no_batch_axis():
    x, y = make()("the cat", 1)
    assert x["token_ids"].shape == (16,) and int(y) == 1


@pytest.mark.slow
def test_empty_text_is_a_row_of_special_tokens():
    assert rows(make()(["", "the"]))[0][0] == [CLS, SEP]
    assert rows(make()((["", ""], ["", "the"]), None))[0][0] == [CLS, SEP, SEP]


@pytest.mark.slow
def test_labels_are_numbers_or_names():
    preprocessor = make(label_names=["no", "yes"])
    assert preprocessor(["a", "a"], ["yes", "no"])[1].numpy().tolist() == [1, 0]
    assert preprocessor(["a", "a"], [1, 0])[1].numpy().tolist() == [1, 0]
    data = preprocessor.dataset((["a", "the"], ["yes", "no"]), 2, training=False)
    ((_, y, w),) = data
    assert y.numpy().tolist() == [1, 0] and w.numpy().tolist() == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("cls", [TextClassifierPreprocessor, TextRegressorPreprocessor])
def test_a_column_of_labels_is_one_for_each_example(cls):
    preprocessor = cls(tiny.make_tokenizer(), 16)
    texts, y, w = ["a", "the"], np.array([[1], [0]]), np.array([[2.0], [3.0]])
    assert preprocessor(texts, y)[1].numpy().tolist() == [1, 0]
    assert preprocessor("a", [1])[1].numpy().tolist() == 1
    streamed = tf.data.Dataset.from_tensor_slices((texts, y, w))
    for data in ((texts, y, w), streamed):
        ((_, labels, weights),) = preprocessor.dataset(data, 2, training=False)
        assert labels.numpy().tolist() == [1, 0]
        assert weights.numpy().tolist() == [2, 3]
    with pytest.raises(ValueError, match=r"`y` must have a value .*shape=\(2, 3\)"):
        preprocessor(texts, np.ones((2, 3), int))
    with pytest.raises(ValueError, match=r"`sample_weight` must .*shape=\(None, 3\)"):
        preprocessor.dataset((texts, y, np.ones((2, 3))), 2)


@pytest.mark.parametrize(
    "arguments, y, message",
    [
        ({"num_classes": 2}, [0, 2], r"in \[0, num_classes=2\).*2"),
        ({"num_classes": 2}, [-1, 0], r"\[-1\]"),
        ({"label_names": ["no", "yes"]}, ["no", "maybe"], "label_names.*maybe"),
        ({}, ["no", "yes"], "label_names=None"),
        ({}, [0.5, 1.0], "float32"),
    ],
)
def test_wrong_labels(arguments, y, message):
    preprocessor = make(**arguments)
    with pytest.raises(ValueError, match=message):
        preprocessor(["a", "a"], y)
    with pytest.raises(ValueError, match=message):
        preprocessor.dataset((["a", "a"], y))


@pytest.mark.slow
def test_wrong_labels_in_a_stream():
    preprocessor = make(num_classes=2)
    data = tf.data.Dataset.from_tensor_slices((["a", "a"], [0, 7]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_classes=2"):
        list(preprocessor.dataset(data, 2))


def test_wrong_inputs():
    preprocessor = make()
    for x in ([1, 2], [["a"], ["b"]], ["a", 3], [None]):
        with pytest.raises(ValueError, match="`x` must be strings"):
            preprocessor(x)
    pair = ("a", "b")
    for x in ([pair, ("a",)], [pair, "a"], [["a", "b"]], [pair, ["a", "b"]], [[]]):
        with pytest.raises(ValueError, match=r"tuples of two strings.* in row \d"):
            preprocessor(x)
    with pytest.raises(ValueError, match="`x` must be strings.*Received: 3, in row 1"):
        preprocessor.dataset(([pair, ("a", 3)], [0, 0]))
    with pytest.raises(ValueError, match="tuple of 3"):
        preprocessor((["a"], ["b"], ["c"]), None)
    with pytest.raises(ValueError, match="at least one example"):
        preprocessor.dataset(tf.data.Dataset.from_tensor_slices((["a"], [0])).take(0))
    with pytest.raises(ValueError, match=r"\(x, y\)"):
        preprocessor.dataset(tf.data.Dataset.from_tensor_slices((["a"],)))
    with pytest.raises(ValueError, match="`batch_size`"):
        preprocessor.dataset((["a"], [0]), 0)
    with pytest.raises(ValueError, match="`layout`"):
        make(layout="gpt5")
    with pytest.raises(ValueError, match="different names"):
        make(label_names=["a", "a"])


@pytest.mark.slow
def test_a_pass_has_each_example_once_in_batches_of_like_length():
    texts, labels = tiny.texts(53)
    preprocessor = make()
    data = preprocessor.dataset((texts, labels), 8, pool=7)
    orders = []
    for _ in range(2):
        seen, spreads = [], []
        for x, y, w in data:
            assert x["token_ids"].shape[0] == 8
            kept = [
                (tuple(row), int(label))
                for (row, _), label, real in zip(rows(x), y, w, strict=True)
                if real
            ]
            lengths = [len(row) for row, _ in kept]
            spreads.append(max(lengths) - min(lengths))
            seen += kept
        orders.append(seen)
        assert len(seen) == 53 and np.mean(spreads) < 3
    expected = [
        (tuple(r), y) for (r, _), y in zip(rows(make()(texts)), labels, strict=True)
    ]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(expected)
    assert orders[0] != orders[1]


@pytest.mark.slow
def test_the_order_depends_on_the_seed_alone():
    def order(seed):
        data = make(seed=seed).dataset(tiny.texts(40), 8)
        return [x["token_ids"].numpy().tolist() for x, _, _ in data]

    assert order(0) == order(0) != order(1)


def test_evaluation_keeps_the_order():
    texts, labels = tiny.texts(21)
    data = make().dataset((texts, labels), 8, training=False)
    assert [len(w) for _, _, w in data] == [8, 8, 5]
    assert np.concatenate([y for _, y, _ in data]).tolist() == labels


@pytest.mark.slow
def test_a_resumed_pass_goes_on_where_it_was():
    texts, labels = tiny.texts(40)
    whole = [y.numpy().tolist() for _, y, _ in make().dataset((texts, labels), 8)]
    preprocessor = make()
    preprocessor.position.set(epoch=0, batch=2)
    rest = [y.numpy().tolist() for _, y, _ in preprocessor.dataset((texts, labels), 8)]
    assert rest == whole[2:]


def test_sample_weights():
    data = make().dataset((["a", "the"], [0, 1], [0.5, 2.0]), 2, training=False)
    ((_, _, w),) = data
    assert w.numpy().tolist() == [0.5, 2.0]


@pytest.mark.slow
def test_regression_targets():
    preprocessor = TextRegressorPreprocessor(tiny.make_tokenizer(), 16)
    y = preprocessor(["a", "the"], [1, 5])[1]
    assert y.dtype == tf.float32 and y.numpy().tolist() == [1, 5]
    with pytest.raises(ValueError, match="must be numbers"):
        preprocessor(["a"], ["1"])
    with pytest.raises(ValueError, match="finite numbers. Received: .nan"):
        preprocessor(["a"], [float("nan")])
    with pytest.raises(ValueError, match="finite numbers. Received: .inf"):
        preprocessor.dataset((["a"], [float("inf")]), 1)
    in_graph = tf.function(lambda y: preprocessor(tf.constant(["a"]), y))
    with pytest.raises(tf.errors.InvalidArgumentError, match="finite numbers"):
        in_graph(tf.constant([float("nan")]))


@pytest.mark.parametrize("cls", [TextClassifierPreprocessor, TextRegressorPreprocessor])
def test_config(cls):
    preprocessor = cls(
        tiny.make_tokenizer(), 12, layout="roberta", buckets=(8,), seed=3
    )
    config = keras.saving.serialize_keras_object(preprocessor)
    other = keras.saving.deserialize_keras_object(config)
    assert other.get_config() == preprocessor.get_config()


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True])
def test_rows_to_predict_are_of_like_length_and_come_back(pairs):
    first = tiny.texts(30)[0]
    x = (first, tiny.texts(30, seed=1)[0]) if pairs else first
    batches, places = make(buckets=[4, 8, 12]).inputs(x, 8)
    widths = [batch["token_ids"].shape[1] for batch in batches]
    assert pairs or widths[0] < widths[-1]
    found = sum((rows(batch) for batch in batches), [])
    expected = rows(make()(x, None))
    assert [found[place] for place in places] == expected
    batches, places = make().inputs(x, 8, steps=2)
    found = sum((rows(batch) for batch in batches), [])
    assert [found[place] for place in places] == expected[:16]
    with pytest.raises(ValueError, match="equally many.* 29 and 30"):
        make().inputs((first, first[1:]))


@pytest.mark.parametrize("buckets", [None, [64]])
def test_predictions_are_padded_to_their_batch_or_to_a_bucket(buckets, monkeypatch):
    preprocessor = TextClassifierPreprocessor(
        tiny.make_tokenizer(), 200, buckets=buckets
    )

    def lengths(any_length):
        texts = ["the " * 8, "the " * 130]
        batches, _ = preprocessor.inputs(texts, 1, any_length=any_length)
        return sorted(x["token_ids"].shape[1] for x in batches)

    assert lengths(False) == ([12, 192] if buckets is None else [64, 200])
    assert lengths(True) == ([12, 136] if buckets is None else [64, 200])
    # It is asked for where no length is compiled.
    asked, inputs = [], preprocessor.inputs

    def watched(*args, any_length=False):
        asked.append(any_length)
        return inputs(*args, any_length=any_length)

    monkeypatch.setattr(preprocessor, "inputs", watched)
    backbone = tiny.make_backbone(num_layers=1, max_sequence_length=200)
    for jit_compile in (False, True):
        if jit_compile and keras.backend.backend() == "torch":
            continue
        model = tasks.TextClassifier(backbone, 2, preprocessor)
        model.compile(jit_compile=jit_compile)
        model.predict(["the"], verbose=0)
        assert asked[-1] is not jit_compile


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("task", [*every.FINE_TUNING, "DualEncoder", "TextToText"])
def test_as_many_examples_as_labels_and_weights(task):
    """In calls, too; one weight isn't spread over all."""
    preprocessor = every.preprocessor_of(task, "t5" if task == "TextToText" else "bert")
    x, y = every.given_to(task)
    preprocessor(x, y, [0.5] * 3)
    cases = [(y, [0.5]), (y, [0.5] * 2), *([] if y is None else [(y[:2], None)])]
    for labels, weights in cases:
        with pytest.raises(ValueError, match="must (be|have) .*(equally|for each)"):
            preprocessor(x, labels, weights)


@pytest.mark.any_backend
def test_one_question_is_not_shared():
    preprocessor = every.preprocessor_of("MultipleChoice", "bert")
    for name in ("context", "question"):
        x = {"question": ["which _"] * 3, **every.CHOICES}
        with pytest.raises(ValueError, match="equally many examples.*x of 1 and 3"):
            preprocessor({**x, name: x[name][:1]})


@pytest.mark.any_backend
@pytest.mark.parametrize("task", ["TokenClassifier", "DependencyParser"])
def test_a_sentence_of_bytes(task):
    preprocessor = every.preprocessor_of(task, "bert", label_names=["a", "b"])
    x, y = every.given_to(task)
    tf.nest.map_structure(
        np.testing.assert_array_equal,
        preprocessor([word.encode() for word in x[0]], y[0]),
        preprocessor(x[0], y[0]),
    )


@pytest.mark.any_backend
def test_a_head_is_a_decimal_number():
    preprocessor = every.preprocessor_of("DependencyParser", "bert")
    for head in ("²", "x", b"\xb2"):
        with pytest.raises(ValueError, match="heads that are numbers.*row 0"):
            preprocessor([["the", "cat"]], [[(head, 0), ("0", 0)]])
