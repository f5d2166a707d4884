"""SavedModels that write texts, as `generate` does, asked with TensorFlow alone."""

import os

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.export import (
    export_saved_model,
    generation_signatures,
    saved_model,
)
from keras_bertfam.layers import (
    train_byte_pair,
    train_sentence_piece,
    train_word_piece,
)
from keras_bertfam.tasks.generation import writing
from keras_bertfam.tokenizers.training import SENTENCE_PIECE, WORD_PIECE
from tests.export.test_task_signatures import ask
from tests.tiny_text_to_text import make

WORDS = ["a bat sat on the mat", "the dog and the cat", "a mat is on the dog"] * 3
PROMPTS = ["the bat", "a", "the cat sat on the"]
# TensorFlow writes and reads them, from a process of its own under other backends.
pytestmark = pytest.mark.any_backend


@pytest.fixture(scope="module")
def documents():
    return tf.data.Dataset.from_tensor_slices(WORDS)


@pytest.fixture(scope="module")
def causal(documents):
    tokenizer = train_byte_pair(documents, 280, family="gpt2")
    preprocessor = tasks.CausalLMPreprocessor(tokenizer, sequence_length=16)
    size = tokenizer.vocabulary_size()
    return tasks.CausalLM(make("GPT2", vocabulary_size=size), preprocessor)


@pytest.fixture(scope="module")
def seq2seq(documents):
    tokenizer = train_sentence_piece(documents, 40, family="t5", sentinels=3)
    preprocessor = tasks.TextToTextPreprocessor(
        tokenizer, sequence_length=10, decoder_start_token_id=5
    )
    size = tokenizer.vocabulary_size()
    return tasks.TextToText(make("T5", vocabulary_size=size), preprocessor)


def texts(answer):
    return [text.decode("utf-8", "ignore") for text in answer["text"].numpy()]


def padded(rows):
    """Rows of ids as the signature `token_ids` takes them."""
    width = max(map(len, rows))
    ids = [[*row, *[0] * (width - len(row))] for row in rows]
    mask = [[k < len(row) for k in range(width)] for row in rows]
    return {"token_ids": tf.constant(ids), "padding_mask": tf.constant(mask)}


def rows_of(answer):
    pairs = zip(
        answer["token_ids"].numpy(), answer["padding_mask"].numpy(), strict=True
    )
    return [row[mask].tolist() for row, mask in pairs]


UNLESS_TOLD = {"eos_token_id": 9, "forced_bos_token_id": 11, "forced_eos_token_id": 8}
UNLESS_TOLD |= {"min_length": 5}
LENGTHS = (
    {"max_length": 8},
    {"max_new_tokens": 4},
    {"max_new_tokens": 3, "num_beams": 2},
)
DEFAULTS = [
    pytest.param(family, more, marks=pytest.mark.slow(*["release"] * release))
    for family, chosen in (
        ("GPT2", 2),
        ("Bert", 1),
        ("T5", 0),
        ("Bart", 2),
        ("TransformerXL", 1),
    )
    for number, more in enumerate(LENGTHS)
    for release in [number != chosen]
]


@pytest.mark.parametrize(("family", "more"), DEFAULTS)
def test_what_a_task_does_unless_told(causal, seq2seq, family, more, tmp_path):
    cls, like = tasks.CausalLM, causal
    if family in ("T5", "Bart"):
        cls, like = tasks.TextToText, seq2seq
        more = {**more, "decoder_start_token_id": 5}
    size = like.backbone.vocabulary_size
    options = {"causal": True} if family == "Bert" else {}
    preprocessor = like.preprocessor
    if family == "TransformerXL":
        cls, tokenizer = tasks.RecurrentLM, preprocessor.tokenizer
        preprocessor = tasks.RecurrentLMPreprocessor(tokenizer, 16)
        options = {"max_sequence_length": None}
    backbone = make(family, vocabulary_size=size, **options)
    model = cls(backbone, preprocessor, generation={**UNLESS_TOLD, **more})
    path = export_saved_model(model, tmp_path / "1", verify=False)
    served = tf.saved_model.load(path).signatures
    rows = [[5, 6, 7], [7], [8, 4]]
    answer = served["token_ids"](**padded(rows))
    assert rows_of(answer) == model.generate(rows)
    answer = served["serving_default"](text=tf.constant(PROMPTS[1:2]))
    assert texts(answer) == model.generate(PROMPTS[1:2])
    # The forced tokens are there.
    (row,) = model.generate([[7]])
    assert row[row[0] == 7] == 11 and row[-1] in (8, 9)


@pytest.mark.slow
def test_texts_that_a_search_does_not_find_are_empty(causal, tmp_path):
    size, stop = causal.backbone.vocabulary_size, 9
    settings = {"num_beams": 3, "num_return_sequences": 3, "forced_last_token": stop}
    model = tasks.CausalLM(make("GPT2", vocabulary_size=size), causal.preprocessor)
    # NumPy's numbers are numbers.
    numbers = {"max_length": np.int64(8), "sampler": "beam", "verify": False}
    given = {**settings, "no_repeat_ngram_size": np.int64(2)}
    path = export_saved_model(model, tmp_path / "1", settings=given, **numbers)
    served = tf.saved_model.load(path).signatures["token_ids"]
    row = [[5, 6, 7, 8, 5, 9, 3]]  # a single token, which is forced, may follow
    answer = served(**padded(row))
    found = model.generate(row, 8, "beam", settings=given)[0]
    lengths = answer["padding_mask"].numpy()[0].sum(-1)
    assert len(found) == 1 and lengths.tolist() == [8, 0, 0]
    assert answer["text"].numpy()[0, 1:].tolist() == [b"", b""]


@pytest.mark.slow
def test_texts_are_of_whole_characters(causal, tmp_path):
    tokenizer = causal.preprocessor.tokenizer
    first = int(np.asarray(tokenizer("\u00e9"))[0])  # half of it
    size = tokenizer.vocabulary_size()
    model = tasks.CausalLM(make("GPT2", vocabulary_size=size), causal.preprocessor)
    path = export_saved_model(
        model,
        tmp_path / "1",
        settings={"forced_first_token": first},
        max_length=3,
        sampler="greedy",
        verify=False,
    )
    served = tf.saved_model.load(path).signatures["serving_default"]
    [text] = served(text=tf.constant(["a"]))["text"].numpy()
    settings = {"forced_first_token": first}
    assert text.decode() == model.generate(["a"], 3, settings=settings)[0]


@pytest.mark.slow
def test_settings_are_those_of_the_task_but_for_the_given_ones(causal, tmp_path):
    size = causal.backbone.vocabulary_size
    usual = {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5}
    model = tasks.CausalLM(
        make("GPT2", vocabulary_size=size), causal.preprocessor, generation=usual
    )
    given = {"diversity_penalty": 1.0}
    options = {"settings": given, "max_length": 6, "verify": False}
    path = export_saved_model(model, tmp_path / "1", **options)
    served = tf.saved_model.load(path).signatures["token_ids"]
    rows = [[5, 6, 7]]
    assert rows_of(served(**padded(rows))) == model.generate(rows, 6, settings=given)
    with pytest.raises(TypeError, match="diversity"):
        export_saved_model(model, tmp_path / "2", settings={"diversity": 1.0})


# What tokenizers of `transformers` put before a text, by whose vocabulary it is.
STARTS = {
    "bert": "[CLS]",
    "mpnet": "<s>",
    "roberta": "<s>",
    "bart": "<s>",
    "modernbert": "[CLS]",
    "deberta": "[CLS]",
    "eurobert": "<|begin_of_text|>",
    "mmbert": "<bos>",
    "gpt": None,
    "gpt2": None,
    "albert": "[CLS]",
    "xlm-roberta": "<s>",
    "camembert": "<s>",
    "deberta-v2": "[CLS]",
    "t5": None,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "bert",
        "gpt2",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("eurobert", "t5")),
        *(
            pytest.param(kind, marks=pytest.mark.slow("release"))
            for kind in sorted({*STARTS} - {"bert", "gpt2", "eurobert", "t5"})
        ),
    ],
)
def test_a_prompt_begins_alike_wherever_it_is_read(kind, documents, monkeypatch):
    if kind in WORD_PIECE:
        tokenizer = train_word_piece(documents, 60, family=kind)
    elif kind in SENTENCE_PIECE:
        tokenizer = train_sentence_piece(documents, 40, family=kind)
    else:
        size = 60 if kind == "gpt" else 300
        tokenizer = train_byte_pair(documents, size, family=kind)
    start = STARTS[kind] and tokenizer.token_to_id(STARTS[kind])
    size, long = tokenizer.vocabulary_size(), " ".join(WORDS)
    preprocessor = tasks.CausalLMPreprocessor(tokenizer, sequence_length=32)
    backbone = make("GPT2", vocabulary_size=size, max_sequence_length=32)
    model = tasks.CausalLM(backbone, preprocessor)
    expected = [
        [*([] if start is None else [start]), *np.asarray(tokenizer(text)).tolist()]
        for text in PROMPTS
    ]

    def echo(task, rows, *_):
        assert rows == expected
        return [[(row, 0.0)] for row in rows], None

    monkeypatch.setattr(writing, "write_by_default", echo)
    assert [text.lstrip() for text in model.generate(PROMPTS)] == PROMPTS
    rows, *_ = next(iter(preprocessor.dataset(documents, 2, training=False)))
    assert start is None or {*np.asarray(rows["token_ids"])[:, 0].tolist()} == {start}
    laid = preprocessor.generate_preprocess(PROMPTS)
    assert rows_of(laid) == expected
    monkeypatch.setattr(
        generation_signatures, "_writer", lambda *_, **__: lambda begun, *_: begun
    )
    signatures = generation_signatures.serving_signatures(
        model, preprocessor, settings=None
    )
    served = signatures["serving_default"].function
    *rows, cut = served(tf.constant([*PROMPTS, long])).to_list()
    assert rows == expected
    tail = np.asarray(tokenizer(long)).tolist()[-31 + (start is not None) :]
    assert cut == [*expected[0][: start is not None], *tail]


@pytest.mark.slow
def test_a_saved_model_goes_on_as_generate(causal, tmp_path):
    stop = [157]  # the model's own taste
    path = export_saved_model(causal, tmp_path / "1", stop_token_ids=stop)
    served = tf.saved_model.load(path).signatures
    expected = causal.generate(PROMPTS, 16, stop_token_ids=stop)
    answer = served["serving_default"](text=tf.constant(PROMPTS))
    assert texts(answer) == expected
    prompts = [[70, 71, 72], [73], [74] * 15]
    answer = served["token_ids"](**padded(prompts))
    expected = causal.generate(prompts, 16, stop_token_ids=stop)
    assert rows_of(answer) == expected and len(expected[0]) == 7
    # No more prompts, or one.
    none = served["serving_default"](text=tf.constant([], tf.string))
    assert none["text"].shape == (0,) and none["token_ids"].shape == (0, 16)
    assert texts(served["serving_default"](text=tf.constant(PROMPTS[:1])))
    # What `generate` refuses spoils no other row.
    answer = served["serving_default"](text=tf.constant(["a", "", "a" * 20_000]))
    alone = served["serving_default"](text=tf.constant(["a"]))
    assert texts(answer)[:2] == [*texts(alone), ""] and texts(answer)[2]
    assert rows_of(answer)[:2] == [*rows_of(alone), []]
    answer = served["token_ids"](**padded([[5] * 16, [5, -1], [73], [279]]))
    expected = causal.generate([[5] * 15, [73]], 16, stop_token_ids=stop)
    assert rows_of(answer) == [expected[0], [], expected[1], []]


@pytest.mark.slow
def test_backbones_alone(causal, seq2seq, tmp_path):
    preset = tmp_path / "preset"
    causal.backbone.save_to_preset(preset)
    tokenizer = causal.preprocessor.tokenizer
    tokenizer.save_to_preset(preset)
    served = tf.saved_model.load(export_saved_model(preset, tmp_path / "1")).signatures
    answer = served["serving_default"](text=tf.constant(PROMPTS))
    rows = padded([np.asarray(tokenizer(text)).tolist() for text in PROMPTS])
    expected = causal.backbone(rows)["sequence_output"]
    mask = rows["padding_mask"].numpy()
    assert np.array_equal(answer["padding_mask"].numpy(), mask)
    for found in (answer, served["token_ids"](**rows)):
        states = found["sequence_output"].numpy()
        expected = keras.ops.convert_to_numpy(expected)
        np.testing.assert_allclose(states[mask], expected[mask], atol=1e-5)
    seq2seq.backbone.save_to_preset(preset)
    seq2seq.preprocessor.tokenizer.save_to_preset(preset)
    with pytest.raises(TypeError, match="Received: T5Backbone"):
        export_saved_model(preset, tmp_path / "2")


def test_arguments(causal, tmp_path):
    for arguments, message in (
        ({"max_length": 17}, "at most 16, the positions"),
        ({"max_length": 1}, "`max_length` must be .* at least 2"),
        ({"max_input_tokens": 16}, "`max_input_tokens` must be an int from 1 to 15"),
        ({"max_input_tokens": 0}, "Received: max_input_tokens=0"),
        ({"sampler": "gready"}, "`sampler` must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            export_saved_model(causal, tmp_path / "1", **arguments)
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_text_to_text_in_a_process_with_tensorflow_only(seq2seq, tmp_path):
    path = export_saved_model(seq2seq, str(tmp_path / "1"), max_length=9)
    sources = [[5, 6, 7, 1], [8, 1]]
    rows = {name: x.numpy().tolist() for name, x in padded(sources).items()}
    by_text, by_ids, none = ask(
        path,
        ("serving_default", {"text": PROMPTS}),
        ("token_ids", rows),
        ("serving_default", {"text": [""]}),
    )
    assert by_text["text"] == seq2seq.generate(PROMPTS, 9)
    expected = seq2seq.generate(sources, 9)
    kept = zip(by_ids["token_ids"], by_ids["padding_mask"], strict=True)
    assert [np.array(row)[mask].tolist() for row, mask in kept] == expected
    assert none["text"] == seq2seq.generate([""], 9)


@pytest.mark.slow
def test_an_export_from_another_backend(causal, tmp_path):
    """The way of JAX and PyTorch: a preset, and a process that exports it."""
    causal.save_to_preset(tmp_path / "preset")
    options = {
        "top_k": 5,
        "max_length": 12,
        "sampler": keras_hub.samplers.TopKSampler(k=20, seed=3),
        "stop_token_ids": np.array([5, 6]),
        "settings": tasks.GenerationSettings(bad_words=[[7]]),
    }
    path = str(tmp_path / "1")
    saved_model._export_in_tensorflow(tmp_path / "preset", path, options)
    request = ("serving_default", {"text": ["a", "a"]})
    first, second = ask(path, request, request)
    again = tf.saved_model.load(path).signatures["serving_default"]
    again = again(text=tf.constant(["a", "a"]))["token_ids"].numpy().tolist()
    assert first["token_ids"] == again != second["token_ids"]
    assert again[0] != again[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["top_p", "beam", "contrastive"])
def test_samplers(causal, seq2seq, name, tmp_path):
    task, sampler = causal if name == "top_p" else seq2seq, name
    if name == "contrastive":
        sampler = keras_hub.samplers.ContrastiveSampler(k=2, alpha=0.3)
    path = export_saved_model(task, tmp_path / "1", 5, 10, sampler, None)
    served = tf.saved_model.load(path).signatures["serving_default"]
    answer = served(text=tf.constant(PROMPTS))
    if name != "top_p":  # which draws
        assert texts(answer) == task.generate(PROMPTS, 10, sampler, None)
    assert answer["padding_mask"].numpy().all()


@pytest.mark.slow
def test_several_texts_with_scores(causal, tmp_path):
    settings = {"num_beams": 3, "num_return_sequences": 2, "return_scores": True}
    settings |= {"bad_words": [[157], "ab"], "min_new_tokens": 2}
    stop = [20, 100]
    path = export_saved_model(
        causal, tmp_path / "1", 5, 14, "beam", stop, settings=settings
    )
    served = tf.saved_model.load(path).signatures["serving_default"]
    answer = served(text=tf.constant(PROMPTS))
    settings = tasks.GenerationSettings(**settings)
    expected, scores = causal.generate(PROMPTS, 14, "beam", stop, settings)
    answers = np.moveaxis(answer["text"].numpy(), 1, 0)
    rows = zip(*(texts({"text": tf.constant(x)}) for x in answers), strict=True)
    assert [*map(list, rows)] == expected
    np.testing.assert_allclose(answer["scores"].numpy(), scores, rtol=1e-5)
    assert answer["token_ids"].shape == answer["padding_mask"].shape == (3, 2, 14)
    with pytest.raises(ValueError, match="the same for all texts of a SavedModel"):
        export_saved_model(causal, tmp_path / "2", stop_token_ids=[[1], [2]])


@pytest.mark.slow
def test_long_texts_are_cut_at_a_length_of_the_signature(seq2seq, causal, tmp_path):
    path = export_saved_model(seq2seq, tmp_path / "1", max_length=9, max_input_tokens=4)
    served = tf.saved_model.load(path).signatures
    end = seq2seq.preprocessor.tokenizer.end_token_id
    long = "the cat sat on the mat " * 1000
    tokens = np.asarray(seq2seq.preprocessor.tokenizer("the cat sat on")).tolist()
    cut = seq2seq.generate([[*tokens[:3], end]], 9)
    assert rows_of(served["serving_default"](text=tf.constant([long]))) == cut
    rows = [[5, 6, 7, 8, 9, 10], [5, 6, 7, 8]]
    first, second = rows_of(served["token_ids"](**padded(rows)))
    assert first == second
    # Those of training by default; of a prompt the last tokens are read.
    path = export_saved_model(causal, tmp_path / "2", max_input_tokens=3)
    served = tf.saved_model.load(path).signatures["token_ids"]
    first, second = rows_of(served(**padded([[5, 70, 71, 72], [70, 71, 72]])))
    assert first == second


@pytest.mark.slow
def test_a_bare_decoder_reads_texts_as_its_task_does(documents, tmp_path):
    tokenizer = train_byte_pair(documents, 300, family="modernbert")
    size = tokenizer.vocabulary_size()
    backbone = make("ModernBertDecoder", vocabulary_size=size)
    preprocessor = tasks.CausalLMPreprocessor(tokenizer, 16)
    (start,) = preprocessor.prompt_start_ids
    backbone.save_to_preset(tmp_path / "preset")
    tokenizer.save_to_preset(tmp_path / "preset")
    path = export_saved_model(str(tmp_path / "preset"), tmp_path / "1")
    served = tf.saved_model.load(path).signatures["serving_default"]
    found = served(text=tf.constant(PROMPTS[:1]))["sequence_output"]
    ids = np.array([[start, *np.asarray(tokenizer(PROMPTS[0])).tolist()]])
    rows = {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}
    expected = keras.ops.convert_to_numpy(backbone(rows)["sequence_output"])
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
