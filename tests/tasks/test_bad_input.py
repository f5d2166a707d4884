"""What is no input is refused by the name of the argument, before anything runs."""

import numpy as np
import pytest

from keras_bertfam.tasks import (
    TextClassifier,
    TextClassifierPreprocessor,
    TextEmbedder,
    TextEmbedderPreprocessor,
    TokenClassifier,
    TokenClassifierPreprocessor,
)
from tests import tiny_fine_tuning as tiny
from tests import tiny_masked_lm


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
        "tagger": TokenClassifier(backbone, preprocessor=tagging, label_names=names),
    }


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
    ],
)
def test_what_is_no_input(model, method, arguments, message, models):
    before = [np.array(v) for v in models[model].get_weights()]
    with pytest.raises(ValueError, match=message):
        getattr(models[model], method)(*arguments)
    for one, other in zip(before, models[model].get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
