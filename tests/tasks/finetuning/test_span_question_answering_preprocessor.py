import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.metrics import squad_scores
from tests import every_task as every
from tests.tiny_questions import make_preprocessor, questions


def strings(preprocessor, ids):
    tokens = preprocessor.tokenizer.get_vocabulary()
    return [tokens[i] for i in ids]


@pytest.mark.slow
def test_row_and_target():
    preprocessor = make_preprocessor()
    x = {"question": "Where is the cat?", "context": "The  cat sat on é a mat."}
    rows, y = preprocessor(x, {"text": "a mat", "answer_start": 18})
    (ids,) = rows["token_ids"].numpy()
    ids = strings(preprocessor, ids)
    assert ids[:7] == ["[CLS]", "where", "is", "the", "cat", "?", "[SEP]"]
    first, last = y.numpy()[0]
    assert ids[first : last + 1] == ["a", "mat"]
    assert rows["start_positions"].numpy() == [first]
    span = rows["span_mask"].numpy()[0]
    assert [i for i, s in zip(ids, span, strict=True) if s] == ids[7:15]
    assert rows["segment_ids"].numpy()[0, 7:15].tolist() == [1] * 8
    assert rows["padding_mask"].numpy().sum() == 16


@pytest.mark.slow
def test_answers_of_many_windows():
    preprocessor = make_preprocessor(sequence_length=18)
    x, y = questions(50, impossible=0.3)
    rows, targets = preprocessor(x, y)
    unlabelled = preprocessor(x, None)
    assert len(targets) == len(unlabelled["start_mask"]) > len(y)
    assert "start_positions" not in unlabelled
    assert rows["token_ids"].shape[1] <= 18
    np.testing.assert_array_equal(unlabelled["token_ids"], rows["token_ids"])
    answers = {" ".join(answer["text"]) for answer in y}
    found = 0
    for ids, (first, last) in zip(
        rows["token_ids"].numpy(), targets.numpy(), strict=True
    ):
        if last:
            assert " ".join(strings(preprocessor, ids[first : last + 1])) in answers
            found += 1
        else:
            assert first == 0
    assert found >= sum(bool(answer["text"]) for answer in y)


@pytest.mark.slow
def test_dataset_has_every_window_once_with_its_weight():
    preprocessor = make_preprocessor(sequence_length=18)
    x, y = questions(30, impossible=0.3)
    all_rows, _ = preprocessor(x, y)
    for training in (True, False):
        batches = list(preprocessor.dataset((x, y), 8, training=training))
        weights = np.concatenate([weight for *_, weight in batches])
        assert weights.sum() == len(all_rows["token_ids"])
        if training:
            assert {len(weight) for *_, weight in batches} == {8}


@pytest.mark.slow
def test_a_dataset_of_questions_gives_what_lists_give():
    x, y = questions(8, impossible=0.4)
    preprocessor = make_preprocessor()
    ragged = {name: tf.ragged.constant([a[name] for a in y]) for name in y[0]}
    data = tf.data.Dataset.from_tensor_slices((x, ragged))
    (expected,), (received,) = (
        preprocessor.dataset(given, 8, training=False) for given in ((x, y), data)
    )
    tf.nest.map_structure(np.testing.assert_array_equal, received, expected)


# As files say it: all the answer's `text` and `answer_start`, and what else there is.
NO_ANSWERS = [
    {"text": [], "answer_start": []},
    {"text": [""], "answer_start": [-1]},
    {"text": [""], "answer_start": [0]},
    {"text": ["mat"], "answer_start": [2], "is_impossible": True},
]


@pytest.mark.slow
def test_no_answer_in_each_of_its_forms():
    count = len(NO_ANSWERS)
    x = {"question": ["where ?"] * count, "context": ["a mat"] * count}
    preprocessor = make_preprocessor()
    flat = [{**y, "text": "".join(y["text"][:1])} for y in NO_ANSWERS[1:]]
    flat = [{**y, "answer_start": y["answer_start"][0]} for y in flat]
    for y in (NO_ANSWERS, [NO_ANSWERS[0], *flat]):
        _, targets = preprocessor(x, y)
        assert not targets.numpy().any()
    assert squad_scores(NO_ANSWERS, [""] * count)["exact_match"] == 100


@pytest.mark.slow
def test_no_answer_in_each_of_its_forms_in_a_dataset():
    count = len(NO_ANSWERS)
    x = {"question": ["where ?"] * count, "context": ["a mat"] * count}
    ragged = {
        "text": tf.ragged.constant([y["text"] for y in NO_ANSWERS]),
        "answer_start": tf.ragged.constant([y["answer_start"] for y in NO_ANSWERS]),
        "is_impossible": [y.get("is_impossible", False) for y in NO_ANSWERS],
    }
    data = tf.data.Dataset.from_tensor_slices((x, ragged))
    ((_, targets, weights),) = make_preprocessor().dataset(data, count, training=False)
    assert not targets.numpy().any() and weights.numpy().all()


@pytest.mark.slow
def test_missing_answers_in_a_dataset():
    x = {"question": ["where ?"] * 3, "context": ["a mat"] * 3}
    y = {"text": ["mat", "mat", ""], "answer_start": [2, 3, 1]}
    data = tf.data.Dataset.from_tensor_slices((x, y))
    with pytest.raises(tf.errors.InvalidArgumentError, match="in their contexts"):
        list(make_preprocessor().dataset(data, 3))
    preprocessor = make_preprocessor(missing_answers="skip")
    ((_, _, weights),) = preprocessor.dataset(data, 3, training=False)
    assert weights.numpy().tolist() == [1, 0, 0]


@pytest.mark.slow
def test_questions_are_cut_and_may_be_empty():
    preprocessor = make_preprocessor(question_length=3)
    x = {"question": ["where is the cat ?", "", "   "], "context": ["a mat", "", "hat"]}
    rows = preprocessor(x, None)
    ids = [strings(preprocessor, row) for row in rows["token_ids"].numpy()]
    assert ids[0][:7] == ["[CLS]", "where", "is", "the", "[SEP]", "a", "mat"]
    assert ids[1][:4] == ["[CLS]", "[SEP]", "[SEP]", "[PAD]"]
    assert not rows["start_mask"].numpy()[1].any()
    assert ids[2][:4] == ["[CLS]", "[SEP]", "hat", "[SEP]"]


@pytest.mark.slow
def test_missing_answers():
    x = {"question": ["where ?"] * 2, "context": ["a mat", "a hat"]}
    y = [{"text": ["mat"], "answer_start": [2]}, {"text": "mat", "answer_start": 2}]
    with pytest.raises(ValueError, match="answer 1, 'mat', which isn't at character 2"):
        make_preprocessor()(x, y)
    preprocessor = make_preprocessor(missing_answers="skip")
    _, targets, weights = preprocessor(x, y)
    assert weights.numpy().tolist() == [1, 0]
    assert targets.numpy()[1].tolist() == [0, 0]
    (batch,) = preprocessor.dataset((x, y), 2)
    assert sorted(batch[2].numpy()) == [0, 1]


@pytest.mark.parametrize(
    "settings,message",
    [
        ({"sequence_length": 9}, "leave room for a context"),
        ({"doc_stride": 0}, "must be positive"),
        ({"missing_answers": "ignore"}, "Received: 'ignore'"),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    with pytest.raises(ValueError, match=message):
        make_preprocessor(**settings)


def test_inputs_that_make_no_sense():
    preprocessor = make_preprocessor()
    with pytest.raises(ValueError, match="`x` must be a dict of question and context"):
        preprocessor(["where ?"])
    with pytest.raises(ValueError, match="the same length. Received: 1 and 2"):
        preprocessor({"question": ["a"], "context": ["a", "b"]}, None)
    with pytest.raises(ValueError, match="`context` must be strings"):
        preprocessor({"question": ["a"], "context": [1]}, None)
    with pytest.raises(ValueError, match="Received: 0 for 1"):
        preprocessor({"question": ["a"], "context": ["a"]}, [])


def test_config():
    preprocessor = make_preprocessor(doc_stride=3, missing_answers="skip")
    copy = type(preprocessor).from_config(preprocessor.get_config())
    names = ("doc_stride", "question_length", "missing_answers", "sequence_length")
    assert [getattr(copy, name) for name in names] == [3, 6, "skip", 24]


@pytest.mark.any_backend
def test_contexts_that_are_not_utf_8():
    preprocessor = every.preprocessor_of("SpanQuestionAnswering", "bert")
    answer = [{"text": "cat", "answer_start": 6}]
    broken, mended = (
        preprocessor({"question": ["who?"], "context": [context]}, answer)[1]
        for context in (b"the \xff cat", "the \ufffd cat")
    )
    np.testing.assert_array_equal(broken, mended)
