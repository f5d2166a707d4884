"""KerasHub's own routines for tests, which come with it, over the classes here."""

import pytest

from tests import every_task as every

pytest.importorskip("grain")  # which the routines import
from keras_hub.src.tests import test_case  # noqa: E402

TEXTS = ["the cat sat", "a dog and a bird"]
KINDS = [
    kind if kind == "bert" else pytest.param(kind, marks=pytest.mark.slow("release"))
    for kind in every.KINDS
]


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", KINDS)
def test_tokenizers(kind):
    tokenizer = every.tokenizer_of(kind)
    config = tokenizer.get_config()
    for name in ("name", "trainable", "dtype", "config_file"):
        config.pop(name, None)
    if hasattr(tokenizer, "proto"):
        config["proto"] = tokenizer.proto
    elif hasattr(tokenizer, "merges"):
        config |= {"vocabulary": tokenizer.vocabulary, "merges": tokenizer.merges}
    else:
        config["vocabulary"] = tokenizer.get_vocabulary()
    test_case.TestCase().run_preprocessing_layer_test(
        type(tokenizer), config, TEXTS, expected_detokenize_output=TEXTS
    )
