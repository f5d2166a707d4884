"""What is no input is refused by the name of the argument, before anything runs."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.tasks import (
    MaskedLMPreprocessor,
    TextClassifier,
    TextClassifierPreprocessor,
    TextEmbedder,
    TextEmbedderPreprocessor,
    TokenClassifier,
    TokenClassifierPreprocessor,
)
from tests import tiny_fine_tuning as tiny
from tests import tiny_masked_lm, tiny_questions

NAN = float("nan")
NAMES = np.array(["O", None], object)
MISSING = np.array(["a", NAN], object)
ROWS = {"token_ids": np.ones((2, 4), "int32")}
FLAT = {"token_ids": np.ones(4, "int32")}
UNEQUAL = {**ROWS, "padding_mask": np.ones((3, 4), bool)}
TEXTS = tf.data.Dataset.from_tensor_slices(["a cat", "the mat"])
QUESTION = {"question": ["Where?"], "context": ["On a mat."]}


def answer(start):
    return {"text": "a mat", "answer_start": start}


@pytest.fixture(scope="module")
def models():
    tokenizer, backbone = tiny.make_tokenizer(), tiny.make_backbone()
    names = ["O", "B"]
    tagging = TokenClassifierPreprocessor(tokenizer, 16, label_names=names)
    return {
        "masked": tiny_masked_lm.make_model(),
        "classifier": TextClassifier(
            backbone, 2, TextClassifierPreprocessor(tokenizer, 16)
        ),
        "embedder": TextEmbedder(backbone, TextEmbedderPreprocessor(tokenizer, 16)),
        "questions": tiny_questions.make_model(),
        "tagger": TokenClassifier(backbone, preprocessor=tagging, label_names=names),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "method", "arguments", "message"),
    [
        ("masked", "fill_mask", ([],), "`texts` must be at least one text"),
        ("masked", "fill_mask", (None,), "`texts` .*None"),
        ("masked", "fill_mask", ("a [MASK]", 0), r"`top_k` .*\[1, 21\].*0"),
        ("masked", "fill_mask", ("a [MASK]", -1), "`top_k`"),
        ("masked", "fill_mask", ("a [MASK]", 22), "`top_k`.*22"),
        ("classifier", "fit", ([], []), "`x` must have at least one example"),
        ("classifier", "fit", (["a"], None), "`y` must be the labels"),
        ("classifier", "fit", (["a", "b"], [0, 1], 0), "`batch_size` .*0"),
        ("classifier", "fit", (["a", "b"], [0, 1], 2.5), "`batch_size` .*int.*2.5"),
        ("classifier", "evaluate", (["a", "b"], [0, 1], -1), "`batch_size` .*-1"),
        ("classifier", "predict", ([],), "`x` must have at least one example"),
        ("classifier", "predict", (["a"], 0), "`batch_size`"),
        ("classifier", "predict", ([None],), "`x` must be strings"),
        ("embedder", "fit", (["a", "cat"], [0.5, 1.0]), "`x` must be pairs"),
        ("embedder", "similarity", (None, None), "`first` and `second`"),
        ("tagger", "tag", ("a cat",), "`sentences` must be words.*'a cat'"),
        ("tagger", "tag", (None,), "`sentences`.*None"),
        ("tagger", "tag", ([None],), "`x` must have words|`sentences`"),
        ("tagger", "tag", (3,), "`sentences`.*3"),
        ("masked", "fit", (None,), "`x` must be .*None"),
        ("masked", "predict", ([],), "`x` must have at least one example"),
        ("masked", "predict", ([None],), "`x` must be .*None, in row 0"),
        ("masked", "fill_mask", ([None],), "`texts` must be strings.*None, in row 0"),
        ("masked", "fill_mask", ("a [MASK]", 1.5), "`top_k` must be an int.*1.5"),
        ("masked", "fit", (ROWS, None), "`y` must be the labels of `x`"),
        ("classifier", "predict", (ROWS, 0), "`batch_size`"),
        ("classifier", "predict", (FLAT,), r"`token_ids` must be rows.*\(4,\)"),
        ("classifier", "predict", (UNEQUAL,), "equally many examples.*x of 2 and 3"),
        ("classifier", "predict", ((["a"], ["a", "the"]),), "equally.*x of 1 and 2"),
        ("classifier", "predict", (None,), "`x` must be .*None"),
        ("classifier", "classify", (None,), "`x` must be .*None"),
        # As a column of pandas with missing values.
        ("classifier", "fit", (MISSING, [0, 1]), "`x` must be strings.*nan, in row 1"),
        ("classifier", "predict", (MISSING,), "`x` must be strings.*nan, in row 1"),
        ("classifier", "fit", (["a", "a"], [0, NAN]), "`y` must be .*nan in row 1"),
        ("classifier", "fit", (["a", "a"], [0, None]), "`y` must be .*None, in row 1"),
        ("classifier", "fit", (["a", "a"], NAMES), "`y` must be .*None, in row 1"),
        ("classifier", "fit", (["a", "a"], [0, 7]), "`y` must be .*7.*in row 1"),
        ("embedder", "fit", ({"token_ids": np.ones((2, 4))}, [0, 1]), "must be pairs"),
        (
            "embedder",
            "fit",
            (ROWS, None),
            "or the ids .*`preprocessor.of_",
        ),
        ("embedder", "predict", ((["a"], ["a", "the"]),), "equally many"),
        ("tagger", "fit", ([["a"], ["the"]], [0, 1]), "`y` must be lists.*row 0: 0"),
        ("tagger", "fit", ([["a"], ["the"]], [[0], [9]]), "`y` .*9.*in row 1"),
        ("tagger", "fit", ([["a"]], [[10**30]]), "`y` must be labels"),
        ("tagger", "fit", ([["a"]], [[None]]), "`y` must be .*None, in row 0"),
        ("tagger", "fit", ([["a"]], [[[0]]]), "`y` must have one label"),
        ("questions", "predict", (None,), "`x` must be .*None"),
        ("questions", "predict", ([{"context": "a"}],), "dict of question and context"),
        ("questions", "predict", ([QUESTION, {}],), r"keys .*in row 1: \[\]"),
        ("masked", "fit", (TEXTS,), "of batches.*`preprocessor.dataset"),
        ("questions", "fit", (QUESTION, [None]), "`y` .*answer 0, None"),
        ("questions", "fit", (QUESTION, 3), "`y` must be a list of answers.*3"),
        ("questions", "fit", (QUESTION, [answer("a")]), "`y` .*answer 0.*'a'"),
        ("questions", "fit", (QUESTION, [answer(1.5)]), "`y` .*answer 0.*1.5"),
        ("questions", "fit", (QUESTION, [answer([])]), "`y` .*answer 0"),
    ],
)
def test_what_is_no_input(model, method, arguments, message, models):
    before = [np.array(v) for v in models[model].get_weights()]
    with pytest.raises(ValueError, match=message):
        getattr(models[model], method)(*arguments)
    for one, other in zip(before, models[model].get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.any_backend
@pytest.mark.parametrize("weights", [[1.0, NAN], ["a", "b"]])
def test_weights_of_text_are_checked_before_it_is_shuffled(weights, models):
    with pytest.raises(ValueError, match="`sample_weight` must be .*(row 1|strings)"):
        models["classifier"].fit(["a", "the"], [0, 1], sample_weight=weights)
    with pytest.raises(ValueError, match="`class_weight` must have finite"):
        models["classifier"].fit(["a", "the"], [0, 1], class_weight={0: NAN})


class Texts(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return ["a", "the"], [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_texts_in_what_yields_batches(method, models):
    loader = pytest.importorskip("torch.utils.data").DataLoader([("a", 0), ("b", 1)])
    for data in (Texts(), loader, ((["a"], [0]) for _ in range(3))):
        given = data if method != "predict" else iter([["a"], ["b"]])
        with pytest.raises(ValueError, match="`x` must have rows.*batches of texts"):
            getattr(models["classifier"], method)(given, verbose=0)


@pytest.mark.any_backend
def test_a_tokenizer_is_no_name():
    for cls in (MaskedLMPreprocessor, TextClassifierPreprocessor):
        with pytest.raises(ValueError, match="`tokenizer` must be .*: 'my_bert'"):
            cls("my_bert", 32)
