import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.tasks import TokenClassifier, TokenClassifierPreprocessor
from tests import tiny_fine_tuning as tiny
from tests.tiny_masked_lm import WORDS

NAMES = ["O", "ANIMAL", "COLOR"]
SENTENCES = [["the", "cats", "sat"], ["reding", "mat"], ["a"]]
LABELS = [["O", "ANIMAL", "O"], ["COLOR", "O"], ["O"]]


def make_preprocessor(**kwargs):
    return TokenClassifierPreprocessor(tiny.make_tokenizer(), 16, **kwargs)


def make(family="bert", **kwargs):
    layout = "xlnet" if family == "xlnet" else None
    settings = {"dtype": kwargs.pop("dtype")} if "dtype" in kwargs else {}
    model = TokenClassifier(
        tiny.make_backbone(family, num_layers=1, **settings),
        preprocessor=make_preprocessor(layout=layout),
        label_names=NAMES,
        **kwargs,
    )
    return tiny.compiled(model)


def outputs(model, words=SENTENCES):
    x = {k: np.asarray(v) for k, v in model.preprocessor(words, None).items()}
    return ops.convert_to_numpy(model(x, training=False))


def data(count=40):
    rng = np.random.default_rng(0)
    rows = [list(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(count)]
    kinds = {"cat": "ANIMAL", "dog": "ANIMAL", "red": "COLOR", "blue": "COLOR"}
    return rows, [[kinds.get(word, "O") for word in row] for row in rows]


@pytest.mark.slow
@pytest.mark.any_backend
def test_words_are_found_at_their_first_pieces():
    x, y, w = make_preprocessor(label_names=NAMES)(SENTENCES, LABELS)
    id_of = tiny.make_tokenizer().token_to_id
    row = x["token_ids"].numpy()[0].tolist()
    assert row[:6] == [2, *map(id_of, ("the", "cat", "##s", "sat")), 3]
    positions = x["word_positions"].numpy()
    assert positions[0, :3].tolist() == [1, 2, 4]
    assert positions[1, :2].tolist() == [1, 3]
    assert w.numpy().sum(1).tolist() == [3, 2, 1]
    assert y.numpy()[0, :3].tolist() == [0, 1, 0] and y.numpy()[1, 0] == 2
    xlnet = make_preprocessor(layout="xlnet")(SENTENCES, None)
    assert xlnet["word_positions"].numpy()[0, :3].tolist() == [0, 1, 3]


@pytest.mark.slow
@pytest.mark.any_backend
def test_arrays_lists_and_ragged_tensors_give_the_same():
    expected = make_preprocessor()(SENTENCES, None)
    ragged = tf.ragged.constant(SENTENCES)
    for words in (ragged, ragged.to_tensor("")):
        received = make_preprocessor()(words, None)
        tf.nest.map_structure(np.testing.assert_array_equal, received, expected)
    numbers = [[NAMES.index(name) for name in row] for row in LABELS]
    _, y, w = make_preprocessor(num_classes=3)(SENTENCES, numbers)
    named = make_preprocessor(label_names=NAMES)(ragged, tf.ragged.constant(LABELS))
    np.testing.assert_array_equal(y * tf.cast(w, tf.int32), named[1])
    single = make_preprocessor()(SENTENCES[0], None)
    np.testing.assert_array_equal(single["word_positions"][:3], [1, 2, 4])


@pytest.mark.slow
def test_labels_belong_to_the_words_among_blanks():
    x = np.array([["the", "", "cat"]])
    preprocessor = make_preprocessor(label_names=NAMES)
    _, y, w = preprocessor(x, np.array([["O", "", NAMES[1]]]), np.array([[1.0, 5, 3]]))
    assert y.numpy()[0, :2].tolist() == [NAMES.index("O"), 1]
    assert w.numpy()[0, :3].tolist() == [1, 3, 0]


@pytest.mark.slow
@pytest.mark.any_backend
def test_the_parts_of_a_long_sentence_are_what_fits_in_rows():
    preprocessor = make_preprocessor()
    words = "the cats sat reding mat a catss".split() * 30
    parts, owners = preprocessor.fitting_parts([words, [], ["a"], words[:3]])
    assert owners == [0] * (len(parts) - 2) + [2, 3]
    assert sum(parts[:-2], []) == words and parts[-2:] == [["a"], words[:3]]
    mask = preprocessor(parts, None)["word_mask"].numpy()
    assert mask.sum(1).tolist() == [len(part) for part in parts]
    # Another word wouldn't begin in the row.
    longer = [
        part + follow[:1] for part, follow in zip(parts, parts[1:-2], strict=False)
    ]
    assert preprocessor(longer, None)["word_mask"].numpy().sum(1).tolist() == [
        len(part) for part in parts[: len(longer)]
    ]
    assert preprocessor.fitting_parts([[], []]) == ([], [])


@pytest.mark.slow
def test_words_beyond_the_row_have_no_weight():
    words = ["cats"] * 10  # 20 pieces, of which 14 fit
    x, _, w = make_preprocessor(label_names=NAMES)([words], [["O"] * 10])
    assert w.numpy().sum() == 7 and x["token_ids"].shape == (1, 16)
    assert x["word_positions"].numpy()[0, :8].tolist() == [1, 3, 5, 7, 9, 11, 13, 0]


def by_words(rows, names):
    """What a dataset of the task says of each word that counts."""
    found = []
    for x, y, weights in rows:
        for ids, at, labels, each in zip(
            *(v.numpy() for v in (x["token_ids"], x["word_positions"], y, weights)),
            strict=True,
        ):
            counted = each > 0
            words = zip(ids[at[counted]], labels[counted], each[counted], strict=True)
            found += [(int(i), names[k], float(w)) for i, k, w in words]
    return found


LONG = ["the", "cats", "sat"] * 10, ["a"], ["red"] * 14, ["cats"] * 8
LONG_LABELS = [[NAMES[k % 3] for k, _ in enumerate(words)] for words in LONG]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lists", "ragged", "sliced", "generated"])
@pytest.mark.parametrize("unlabelled", [False, True])
def test_no_word_is_left_out_of_training_and_scores(form, unlabelled):
    names = {"label_names": NAMES}
    preprocessor, tokenizer = make_preprocessor(**names), tiny.make_tokenizer()
    x, y = [*LONG], [[*row] for row in LONG_LABELS]
    weights = [1.0, 2.0, 3.0, 4.0]
    if unlabelled:
        y[0][29] = y[2][0] = "-100"
    first = {word: int(tokenizer([word])[0][0]) for words in x for word in words}
    expected = [
        (first[word], label, weight)
        for words, labels, weight in zip(x, y, weights, strict=True)
        for word, label in zip(words, labels, strict=True)
        if label != "-100"
    ]
    data = (x, y, weights)
    if form != "lists":
        data = (tf.ragged.constant(x), tf.ragged.constant(y), weights)
    if form == "sliced":
        data = tf.data.Dataset.from_tensor_slices(data)
    if form == "generated":
        specs = [tf.TensorSpec([None], tf.string)] * 2 + [tf.TensorSpec([])]
        data = tf.data.Dataset.from_generator(
            lambda: zip(x, y, weights, strict=True), output_signature=tuple(specs)
        )
    rows = preprocessor.dataset(data, 3, training=False)
    assert by_words(rows, NAMES) == expected
    if form == "lists":  # numbers in place of names
        y = [[-100 if t == "-100" else NAMES.index(t) for t in row] for row in y]
        numbered = make_preprocessor(num_classes=3)
        rows = numbered.dataset((x, y, weights), 3, training=False)
        assert by_words(rows, NAMES) == expected
        trained = numbered.dataset((x, y, weights), 3)
        assert sorted(by_words(trained, NAMES)) == sorted(expected)


@pytest.mark.slow
def test_scores_and_predictions_are_of_all_words():
    model = make()
    expected = [label for row in model.tag([*LONG]) for _, label, _ in row]
    predicted = model.predict([*LONG], verbose=0)
    assert predicted.shape == (4, 30, 3)
    given = np.array([[bool(k < len(words)) for k in range(30)] for words in LONG])
    numbers = predicted[given].argmax(-1)
    assert [NAMES[k] for k in numbers] == expected
    assert not predicted[~given].any()
    # Sentences without words don't hide that others are cut.
    beside = model.predict([[], *LONG, []], verbose=0)
    np.testing.assert_allclose(beside[1:-1], predicted, atol=1e-6)
    first = model.predict([*LONG], batch_size=1, steps=2, verbose=0)
    np.testing.assert_allclose(first, predicted[:2], atol=1e-6)
    flat = [label for row in LONG_LABELS for label in row]
    right = np.mean([a == b for a, b in zip(flat, expected, strict=True)])
    scores = model.evaluate([*LONG], LONG_LABELS, verbose=0, return_dict=True)
    assert scores["accuracy"] == pytest.approx(right)
    report = model.report([*LONG], LONG_LABELS)
    assert report.scores["accuracy"] == pytest.approx(right)
    some = [[*row] for row in LONG_LABELS]
    some[0][::2] = ["-100"] * 15
    report = model.report([*LONG, ()], [*some, ()])
    kept = [t != "-100" for row in some for t in row]
    pairs = [
        p for p, k in zip(zip(flat, expected, strict=True), kept, strict=True) if k
    ]
    right = np.mean([a == b for a, b in pairs])
    assert report.scores["accuracy"] == pytest.approx(right)


def test_datasets_of_batches_are_refused():
    data = tf.data.Dataset.from_tensors(([["the"]], [["O"]]))
    with pytest.raises(ValueError, match="`data` must have a sentence"):
        make_preprocessor(label_names=NAMES).dataset(data)


def test_a_word_without_pieces_is_a_mask_token():
    x = make_preprocessor()([["the", "\u200b", "cat"]], None)
    assert x["token_ids"].numpy()[0, 2] == tiny.make_tokenizer().mask_token_id
    assert x["word_positions"].numpy()[0, :3].tolist() == [1, 2, 3]


@pytest.mark.slow
def test_no_words_at_all():
    x, y, w = make_preprocessor(label_names=NAMES)([[], ["a"]], [[], ["O"]])
    assert x["padding_mask"].numpy().sum(1).tolist() == [2, 3]
    assert w.numpy().sum(1).tolist() == [0, 1]


@pytest.mark.slow
@pytest.mark.any_backend
def test_sentences_of_a_stream_have_their_own_numbers_of_words():
    preprocessor = make_preprocessor(label_names=NAMES)
    strings = tf.TensorSpec([None], tf.string)
    rows = tf.data.Dataset.from_generator(
        lambda: zip(SENTENCES, LABELS, strict=True), output_signature=(strings, strings)
    )
    expected = list(preprocessor.dataset((SENTENCES, LABELS), 2, training=False))
    received = preprocessor.dataset(rows, 2, training=False)
    for got, wanted in zip(received, expected, strict=True):
        np.testing.assert_array_equal(got[1], wanted[1][:, : got[1].shape[1]])
        np.testing.assert_array_equal(got[0]["token_ids"], wanted[0]["token_ids"])


@pytest.mark.slow
def test_weights_of_sentences_and_of_words():
    """One call after the other: a graph of both would know no rank."""
    preprocessor = make_preprocessor(label_names=NAMES)
    by_word = [[1.0] * len(words) for words in SENTENCES]
    _, _, first = preprocessor(SENTENCES, LABELS, preprocessor.as_weights(by_word))
    _, _, second = preprocessor(SENTENCES, LABELS, [1.0] * len(SENTENCES))
    np.testing.assert_array_equal(first, second)
    longest = max(map(len, SENTENCES))
    count = len(SENTENCES)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`sample_weight` must"):
        preprocessor(SENTENCES, LABELS, np.ones((count, longest + 1), "float32"))
    with pytest.raises(ValueError, match="equally many.*sample_weight of 4"):
        preprocessor(SENTENCES, LABELS, np.ones((count + 1, longest), "float32"))


@pytest.mark.slow
def test_weights_of_words_may_be_lists_of_unequal_length():
    preprocessor = make_preprocessor(label_names=NAMES)
    weights = [[1.0, 0.5, 0.0], [1.0, 2.0], [3]]
    data = preprocessor.dataset((SENTENCES, LABELS, weights), 3, training=False)
    (_, _, got) = next(iter(data))
    np.testing.assert_allclose(got[:, :3], [[1, 0.5, 0], [1, 2, 0], [3, 0, 0]])
    with pytest.raises(ValueError, match="equally many.*sample_weight of 0"):
        preprocessor.dataset((SENTENCES, LABELS, []), 3)


@pytest.mark.parametrize(
    "x, y, message",
    [
        (SENTENCES, LABELS[:2], "2 rows of labels and 3"),
        ([["the", "cat"]], [["O"]], "1 labels for the 2 words of row 0"),
        (tf.ragged.constant([["the", "cat"]]), [["O"]], "1 labels for the 2 words"),
        (np.array([["the", "cat"]]), [["O"]], "shape of `x`, .1, 2.. Received.*1, 1"),
        ([["the", ""]], [["O", "O"]], "aren't empty. Received in row 0"),
        ([["the", 3]], [["O", "O"]], "words"),
        ([["the"]], [["PLANT"]], "label_names.*PLANT"),
        ([["the"]], [[7]], "7"),
        ("the cat", None, "rank 1 or 2"),
    ],
)
def test_wrong_words_and_labels(x, y, message):
    preprocessor = make_preprocessor(label_names=NAMES)
    with pytest.raises(ValueError, match=message):
        preprocessor(x, y)
    if y is not None:
        with pytest.raises(ValueError, match=message):
            preprocessor.dataset((x, y))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "roberta", "xlnet"])
def test_logits_at_the_first_pieces(family):
    model = make(family)
    x = {k: np.asarray(v) for k, v in model.preprocessor(SENTENCES, None).items()}
    logits = ops.convert_to_numpy(model(x))
    positions = x.pop("word_positions")
    whole = ops.convert_to_numpy(model(x))
    assert logits.shape == (*positions.shape, 3) and logits.dtype == "float32"
    expected = np.take_along_axis(whole, positions[..., None], 1)
    mask = x["word_mask"]
    np.testing.assert_allclose(logits[mask], expected[mask], atol=1e-5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_fit_evaluate_predict_and_tag():
    model = make()
    model.compile(learning_rate=3e-2, jit_compile=keras.backend.backend() == "jax")
    rows, labels = data()
    history = model.fit(
        rows, labels, batch_size=8, epochs=6, validation_data=(rows, labels), verbose=0
    ).history
    assert history["val_accuracy"][-1] > 0.95
    predicted = model.predict(rows, batch_size=16, verbose=0)
    assert predicted.shape == (40, max(map(len, rows)), 3)
    tagged = model.tag(rows)
    right = [
        label == given
        for row, given_row in zip(tagged, labels, strict=True)
        for (_, label, _), given in zip(row, given_row, strict=True)
    ]
    np.testing.assert_allclose(np.mean(right), history["val_accuracy"][-1], atol=1e-5)
    long = ["cat", "the"] * 30  # four rows
    answers = model.tag(long)
    assert [word for word, _, _ in answers] == long
    assert [label for _, label, _ in answers] == ["ANIMAL", "O"] * 30
    assert model.tag([]) == [] and model.tag([[], ["cat"]])[0] == []


@pytest.mark.slow
def test_the_loss_is_the_mean_over_words():
    model = make()
    x, y, w = model.preprocessor(SENTENCES, LABELS)
    logits = outputs(model)
    losses = np.log(np.exp(logits).sum(-1))
    losses -= np.take_along_axis(logits, np.asarray(y)[..., None], -1)[..., 0]
    expected = (losses * w.numpy()).sum() / 6
    received = model.compute_loss(None, np.asarray(y), logits, np.asarray(w))
    np.testing.assert_allclose(ops.convert_to_numpy(received), expected, rtol=1e-5)


@pytest.mark.slow
def test_round_trips(tmp_path):
    model = make()
    expected = outputs(model)
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(outputs(other), expected, atol=1e-6)
    model.save_to_preset(str(tmp_path / "preset"))
    other = TokenClassifier.from_preset(str(tmp_path / "preset"))
    np.testing.assert_allclose(outputs(other), expected, atol=1e-6)
    assert other.get_config() == model.get_config()


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_mixed_precision():
    model = make(dtype="mixed_bfloat16")
    history = model.fit(SENTENCES, LABELS, batch_size=3, verbose=0).history
    assert np.isfinite(history["loss"]).all() and outputs(model).dtype == "float32"
