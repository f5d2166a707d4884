"""Files of KerasHub's presets: each key is used, without a meaning, or refused."""

import json

import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints import kerashub
from keras_bertfam.tasks import MaskedLM, TextClassifier
from tests.presets.checkpoints.test_kerashub import make, randomise

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcde", "é", "##b"]
NO_HEAD = pytest.mark.filterwarnings("ignore:.*and new")


def save(folder, activation=None, **kwargs):
    """Write a classifier with its preprocessor; the classifier."""
    names = ("lowercase", "strip_accents", "special_tokens_in_strings")
    given = {name: kwargs.pop(name) for name in names if name in kwargs}
    tokenizer = keras_hub.tokenizers.BertTokenizer(TOKENS, **given)
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, **kwargs)
    theirs = keras_hub.models.BertTextClassifier(
        make("BertBackbone", max_sequence_length=16),
        3,
        preprocessor=preprocessor,
        activation=activation,
        dropout=0.25,
    )
    randomise(theirs).save_to_preset(str(folder))
    return theirs


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_a_classifier_answers_as_there(activation, tmp_path):
    given = {"lowercase": True, "special_tokens_in_strings": True}
    theirs = save(tmp_path, activation, sequence_length=7, **given)
    ours = TextClassifier.from_preset(str(tmp_path))
    assert ours.multi_label == (activation == "sigmoid") and ours.dropout == 0.25
    assert ours.preprocessor.sequence_length == 7
    texts = ["a b [MASK]", "E d c b a a a b", "é"]
    x = theirs.preprocessor(texts)
    row = ours.preprocessor(texts)
    np.testing.assert_array_equal(row["token_ids"], x["token_ids"])
    expected = ops.convert_to_numpy(theirs(x))
    found = ours({name: np.array(each) for name, each in row.items()})
    np.testing.assert_allclose(ops.convert_to_numpy(found), expected, atol=1e-5)
    probabilities = ops.convert_to_numpy(ours.probabilities(found))
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    back = ops.convert_to_numpy(ours.to_keras_hub()(x))
    np.testing.assert_allclose(back, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip", [True, False])
def test_accents_as_there(lowercase, strip, tmp_path):
    theirs = save(tmp_path, lowercase=lowercase, strip_accents=strip)
    ours = TextClassifier.from_preset(str(tmp_path)).preprocessor.tokenizer
    for text in ("é ab", "É AB"):
        assert list(ours(text)) == list(np.array(theirs.preprocessor.tokenizer(text)))


@pytest.mark.slow
@pytest.mark.any_backend
@NO_HEAD
def test_every_key_is_used_known_or_refused(tmp_path):
    save(tmp_path, "softmax", sequence_length=7)
    for name, known in kerashub.KEYS.items():
        path = tmp_path / name
        content = json.loads(path.read_text())
        for key in (*content["config"], "odd"):
            if key in known and known[key] is None:
                continue
            changed = {**content, "config": {**content["config"], key: "odd"}}
            path.write_text(json.dumps(changed))
            if key == "truncate":
                with pytest.warns(UserWarning, match="truncate='odd'"):
                    TextClassifier.from_preset(str(tmp_path))
            else:
                with pytest.raises(CheckpointError, match="odd"):
                    TextClassifier.from_preset(str(tmp_path))
        path.write_text(json.dumps(content))
    # What was saved of one task's preprocessor isn't another's.
    other = MaskedLM.from_preset(str(tmp_path))
    assert other.preprocessor.sequence_length == 16
