import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.tasks import MultipleChoice, MultipleChoicePreprocessor
from tests import tiny_fine_tuning as tiny

X = {
    "context": ["the cat sat on the mat", "a dog ran"],
    "question": ["the _ sat", "and"],
    "choices": [["dog", "cat", "hat"], ["a tree", "red", ""]],
}


def make_preprocessor(length=24, **kwargs):
    return MultipleChoicePreprocessor(tiny.make_tokenizer(), length, **kwargs)


def make(family="bert", **kwargs):
    backbone = tiny.make_backbone(family, num_layers=1, **kwargs)
    layout = "xlnet" if family == "xlnet" else None
    return tiny.compiled(MultipleChoice(backbone, make_preprocessor(layout=layout)))


def outputs(model, x=X):
    rows = {k: np.asarray(v) for k, v in model.preprocessor(x).items()}
    return ops.convert_to_numpy(model(rows, training=False))


def words(ids):
    vocabulary = tiny.make_tokenizer().get_vocabulary()
    return " ".join(vocabulary[i] for i in np.asarray(ids) if i)


@pytest.mark.slow
def test_a_row_for_each_choice():
    x, y = make_preprocessor()(X, [1, 0])
    ids = x["token_ids"].numpy()
    assert ids.shape[:2] == (2, 3) and y.numpy().tolist() == [1, 0]
    assert words(ids[0, 1]) == "[CLS] the cat sat on the mat [SEP] the cat sat [SEP]"
    assert words(ids[1, 0]) == "[CLS] a dog ran [SEP] and a tree [SEP]"
    assert words(ids[1, 2]) == "[CLS] a dog ran [SEP] and [SEP]"
    assert x["segment_ids"].numpy()[1, 0].tolist()[:10] == [0] * 5 + [1] * 4 + [0]
    joined = {"context": X["context"], "choices": X["choices"]}
    ids = make_preprocessor()(joined)["token_ids"].numpy()
    assert words(ids[1, 0]) == "[CLS] a dog ran [SEP] a tree [SEP]"
    pair = make_preprocessor()((X["context"], X["choices"]), None)
    np.testing.assert_array_equal(pair["token_ids"], ids)
    rows = [dict(zip(X, row, strict=True)) for row in zip(*X.values(), strict=True)]
    of_rows, y = make_preprocessor()(rows, [1, 0])
    np.testing.assert_array_equal(of_rows["token_ids"], x["token_ids"])
    single = {name: value[0] for name, value in X.items()}
    one = make_preprocessor()(single)["token_ids"]
    assert one.shape[0] == 3 and words(one[0]).startswith("[CLS] the cat sat on")


@pytest.mark.slow
def test_the_end_of_question_and_choice_and_the_start_of_the_context_are_kept():
    x = {
        "context": ["the cat sat on the mat and saw a red tree"],
        "choices": [["in by hat", "blue dog ran in by hat"]],
    }
    ids = make_preprocessor(12, choice_length=3)(x)["token_ids"].numpy()[0]
    assert words(ids[0]) == "[CLS] the cat sat on the mat [SEP] in by hat [SEP]"
    assert words(ids[1]) == "[CLS] the cat sat on the mat [SEP] in by hat [SEP]"


@pytest.mark.parametrize(
    "x, y, message",
    [
        (
            {"context": ["a"], "choices": [["a", "b"]]},
            [0],
            "num_choices=3.*Received: 2",
        ),
        (
            {**X, "choices": [["a", "b", "a"], ["a"]]},
            [0, 0],
            "`choices` must be strings",
        ),
        ({**X, "answer": ["a"]}, [0, 0], "answer"),
        (["a", "b"], [0, 0], "list"),
        (X, [0, 3], r"\[3\]"),
        (X, ["A", "B"], "label_names=None"),
    ],
)
def test_wrong_inputs(x, y, message):
    with pytest.raises(ValueError, match=message):
        make_preprocessor(num_choices=3)(x, y)


@pytest.mark.slow
def test_letters_as_labels():
    preprocessor = make_preprocessor(label_names="ABC")
    assert preprocessor(X, ["B", "A"])[1].numpy().tolist() == [1, 0]
    with pytest.raises(ValueError, match="`choice_length`"):
        make_preprocessor(choice_length=22)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "electra", "xlnet"])
def test_each_choice_is_scored_by_itself(family):
    model = make(family)
    scores = outputs(model)
    assert scores.shape == (2, 3) and scores.dtype == "float32"
    turned = {**X, "choices": [row[::-1] for row in X["choices"]]}
    np.testing.assert_allclose(outputs(model, turned), scores[:, ::-1], atol=1e-5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_fit_evaluate_predict_and_choose():
    model = make()
    model.compile(learning_rate=3e-2, jit_compile=keras.backend.backend() == "jax")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 32)
    choices = [["cat" if k == right else "dog" for k in range(3)] for right in y]
    x = {"context": ["the"] * 32, "choices": choices}
    history = model.fit(x, y, batch_size=8, epochs=6, verbose=0).history
    loss, accuracy = model.evaluate(x, y, batch_size=16, verbose=0)
    assert accuracy > 0.9 and loss < history["loss"][0]
    assert model.predict(x, batch_size=16, verbose=0).shape == (32, 3)
    answers = model.choose(x)
    assert np.mean([k == right for (k, _), right in zip(answers, y, strict=True)]) > 0.9
    assert all(0.3 < p <= 1 for _, p in answers)


@pytest.mark.slow
def test_round_trips(tmp_path):
    model = make()
    expected = outputs(model)
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(outputs(other), expected, atol=1e-6)
    model.save_to_preset(str(tmp_path / "preset"))
    other = MultipleChoice.from_preset(str(tmp_path / "preset"))
    np.testing.assert_allclose(outputs(other), expected, atol=1e-6)
    assert other.get_config() == model.get_config()


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_mixed_precision():
    model = make(dtype="mixed_bfloat16")
    history = model.fit(X, [1, 0], batch_size=2, verbose=0).history
    assert np.isfinite(history["loss"]).all() and outputs(model).dtype == "float32"
