"""Texts that are written: by a cache as without, and only what is asked for."""

import types

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.tasks.generation.prompts import as_texts, token_rows
from keras_bertfam.tasks.generation.samplers import FastGreedySampler
from keras_bertfam.tasks.generation.writing import checked_decoder
from keras_bertfam.tokenizers import GPTTokenizer
from tests.tasks.generation.text_to_text_tokenizers import word_piece
from tests.tiny_families import backbone_of
from tests.tiny_text_to_text import ids, make

SAMPLERS = keras_hub.samplers


def array(x):
    return ops.convert_to_numpy(x)


@pytest.fixture(scope="module")
def causal():
    return tasks.CausalLM(make("GPT2"))


@pytest.fixture(scope="module")
def seq2seq():
    return tasks.TextToText(make("T5"))


def greedily(logits_of, row, length):
    """A text by the model's best token, read anew for each."""
    while len(row) < length:
        padded = np.array([row + [0] * (length - len(row))], "int32")
        row = [*row, int(array(logits_of(padded))[0, len(row) - 1].argmax())]
    return row


@pytest.mark.slow
def test_the_cache_changes_nothing(causal, seq2seq):
    prompts = [ids(4).tolist(), ids(2, seed=1).tolist()]
    expected = [greedily(lambda t: causal({"token_ids": t}), row, 9) for row in prompts]
    assert causal.generate(prompts, 9) == expected
    lengths = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    padded = np.array([[*row, *[7] * (5 - len(row))] for row in prompts])
    inputs = {"token_ids": padded, "padding_mask": lengths}
    assert causal.generate(inputs, 9) == expected

    def logits(row):
        def of(tokens):
            x = {"encoder_token_ids": np.array([row]), "decoder_token_ids": tokens}
            return seq2seq(x)

        return of

    expected = [greedily(logits(row), [0], 8)[1:] for row in prompts]
    assert seq2seq.generate(prompts, 8) == expected


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Electra", "Longformer", "ModernBert"])
def test_any_encoder_writes_from_left_to_right(family):
    task = tasks.CausalLM(backbone_of(family, causal=True, max_global_tokens=0))
    prompts = [[5, 6, 7, 8], [8]]
    expected = [greedily(lambda t: task({"token_ids": t}), row, 9) for row in prompts]
    assert task.generate(prompts, 9) == expected


@pytest.mark.slow
def test_stop_tokens_end_each_text(causal):
    prompts = [[5, 6, 7], [8]]
    whole = causal.generate(prompts, 12)
    stop = whole[0][5]
    found = causal.generate(prompts, 12, stop_token_ids=[stop])
    for text, long, prompt in zip(found, whole, prompts, strict=True):
        new = long[len(prompt) :]
        count = new.index(stop) + 1 if stop in new else len(new)
        assert text == long[: len(prompt) + count]


@pytest.mark.slow
def test_seeds_and_new_weights(causal):
    def text(seed):
        sampler = SAMPLERS.TopKSampler(k=20, seed=seed)
        return causal.generate([[5, 6]], 14, sampler)

    compiled = getattr(causal, "compiled_writers", None)
    known = len(compiled.known) if compiled else 0
    assert text(1) == text(1)
    assert text(1) != text(2)
    assert len(causal.compiled_writers.known) <= known + 1  # one for all seeds
    sampler = SAMPLERS.TopKSampler(k=20, seed=1)
    both = [causal.generate([[5, 6]], 14, sampler) for _ in range(2)]
    assert both[0] == text(1) != both[1]
    before = causal.generate([[5, 6, 7]], 12)
    graphs = causal.compiled_writers.graphs  # of a step, by the shapes of its arguments
    assert bool(graphs) == (keras.backend.backend() == "torch")
    table = causal.backbone.token_embedding.embeddings
    kept = array(table)
    table.assign(kept[::-1].copy())
    made = len(graphs)
    assert causal.generate([[5, 6, 7]], 12) != before
    table.assign(kept)
    assert causal.generate([[5, 6, 7]], 12) == before
    assert len(graphs) == made


@pytest.mark.slow
def test_a_task_that_has_written_is_saved_and_quantised(seq2seq, tmp_path):
    before = seq2seq.generate([[5, 6, 7]], 8)
    seq2seq.save(tmp_path / "task.keras")
    again = keras.saving.load_model(tmp_path / "task.keras")
    assert again.generate([[5, 6, 7]], 8) == before
    again.quantize("int8")
    assert len(again.generate([[5, 6, 7]], 8)[0]) == 7


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["top_p", "random", "beam", "contrastive"])
def test_every_sampler(causal, seq2seq, name):
    if name == "contrastive":
        name = SAMPLERS.ContrastiveSampler(k=2, alpha=0.3)
    for task, length in ((causal, 7), (seq2seq, 6)):
        texts = task.generate([[5, 6, 7], [8]], 7, name)
        assert [len(text) for text in texts] == [length, length]


@pytest.mark.slow
def test_other_numbers_are_written_by_what_is_compiled():
    task = tasks.CausalLM(make("GPT2"))
    prompts, stop = [[5, 6, 7], [8]], [3, 4]
    usual = {"num_beams": 4, "num_beam_groups": 2, "early_stopping": "never"}
    settings = [
        tasks.GenerationSettings(**usual, **numbers)
        for numbers in (
            {"repetition_penalty": 1.3, "diversity_penalty": 0.1, "min_new_tokens": 1},
            {"repetition_penalty": 4, "diversity_penalty": 9.0, "min_new_tokens": 5}
            | {"length_penalty": -2},
        )
    ]
    samplers = [
        lambda temperature=temperature, p=p: keras_hub.samplers.TopPSampler(
            p, temperature=temperature, seed=1
        )
        for temperature, p in ((0.3, 0.9), (2.0, 0.4))
    ]
    asked = [(lambda: "beam", each) for each in settings]
    asked += [(sampler, None) for sampler in samplers]
    found = [
        task.generate(prompts, 9, sampler(), stop, each) for sampler, each in asked
    ]
    assert len(task.compiled_writers.known) == 2
    for texts, (sampler, each) in zip(found, asked, strict=True):
        alone = tasks.CausalLM(make("GPT2"))
        assert alone.generate(prompts, 9, sampler(), stop, each) == texts
    assert len({str(texts) for texts in found}) == 4


class Letters:
    """A tokenizer of letters, and the preprocessor that has it."""

    end_token_id, pad_token_id = 1, 0

    @property
    def tokenizer(self):
        return self

    def __call__(self, text):
        return np.array([ord(letter) - ord("a") + 3 for letter in text])

    def detokenize(self, token_ids):
        return "".join(chr(ord("a") + max(0, token - 3)) for token in token_ids)

    def vocabulary_size(self):
        return 29


@pytest.mark.slow
def test_strings(causal, seq2seq):
    with pytest.raises(ValueError, match="must be ids for a task without a preproc"):
        causal.generate("abc", 6)
    for task in (causal, seq2seq):
        task.preprocessor = Letters()
        try:
            texts = task.generate(["abc", "d"], 8)
            assert task.generate("abc", 8) == task.generate(["abc"], 8)[0]
            if task is causal:  # there is no token before an empty prompt
                with pytest.raises(ValueError, match="an empty one in row 1"):
                    task.generate(["abc", ""], 8)
            rows = [[3, 4, 5], [6]]
            if task is seq2seq:
                rows = [[*row, 1] for row in rows]
            written = task.generate(rows, 8)
        finally:
            task.preprocessor = None
        ended = [row[:-1] if row[-1] == 1 else row for row in written]
        assert texts == [Letters().detokenize(row) for row in ended]
        assert task is seq2seq or texts[0].startswith("abc")


@pytest.mark.slow
def test_texts_begin_as_the_preprocessor_says(seq2seq):
    tokenizer = word_piece()
    seq2seq.preprocessor = tasks.TextToTextPreprocessor(
        tokenizer, 12, decoder_start_token_id=7
    )
    try:
        rows, _ = token_rows(seq2seq, ["the[MASK]cat", "[MASK]"], specials=True)
        of = tokenizer.token_to_id
        assert rows[0] == [of(t) for t in ("[CLS]", "the", "[MASK]", "cat", "[SEP]")]
        assert rows[1] == [of(t) for t in ("[CLS]", "[MASK]", "[SEP]")]
        ours = seq2seq.generate(rows, 8, stop_token_ids=None)
        texts = seq2seq.generate(["the [MASK] cat", "[MASK]"], 8, stop_token_ids=None)
        kept = [token for token in ours[0] if token != of("[CLS]")]
        assert texts == as_texts(seq2seq, ours, None, specials=True)
        assert texts[0] == as_texts(seq2seq, [kept], None)[0]
    finally:
        seq2seq.preprocessor = None
    first = {"stop_token_ids": None, "start_token_ids": [7]}
    assert seq2seq.generate(rows, 8, **first) == ours
    assert seq2seq.generate(rows, 8, stop_token_ids=None) != ours


@pytest.mark.any_backend
def test_texts_are_strings():
    words = {"<unk>": 0, "a</w>": 1, "b</w>": 2, "a": 3, "ab</w>": 4}
    preprocessor = types.SimpleNamespace(tokenizer=GPTTokenizer(words, ["a b</w>"]))
    task = types.SimpleNamespace(preprocessor=preprocessor)
    assert as_texts(task, [[1, 2], [2, 1]], [1]) == ["a b", "b"]


def test_greedy_takes_the_first_of_the_largest():
    nan = float("nan")
    logits = ops.array([[1.0, 3, 3, 2], [5, 1, 1, 1], [0, -9, -9, 0.5], [nan] * 4])
    *found, of_none = array(FastGreedySampler().get_next_token(logits)).tolist()
    assert found == [1, 0, 3] and of_none in range(4)


def test_errors(causal, seq2seq):
    for task in (causal, seq2seq):
        for prompts, message in (
            ([], "at least one token. Received: none"),
            ([[5], []], "an empty one in row 1"),
            ([[5], [30]], "from 30 to 30 in row 1"),
            ([[-1]], "from -1 to -1 in row 0"),
            ([[5.5]], "must be strings, or rows of integers.*float64 in row 0"),
            ([[5], "a"], "must be all strings, or all rows of integers"),
        ):
            with pytest.raises(ValueError, match=message):
                task.generate(prompts, 6)
    for task, most in ((causal, 15), (tasks.TextToText(make("Bart")), 16)):
        with pytest.raises(ValueError, match=f"at most {most} tokens.*17 in row 1"):
            task.generate([[5], [6] * 17], 16)
    with pytest.raises(ValueError, match="at least 4, .* at most 16.*max_length=3"):
        causal.generate([[5, 6, 7], [8]], 3)
    for sampler in ("gready", 5, "speculative"):
        with pytest.raises(ValueError, match="`sampler` must be one of .'greedy'"):
            causal.generate([[5]], 6, sampler)
    with pytest.raises(ValueError, match="one text for each prompt"):
        causal.generate([[5]], 6, SAMPLERS.BeamSampler(return_all_beams=True))
    with pytest.raises(ValueError, match="`stop_token_ids` must be .*'end'"):
        causal.generate([[5]], 6, stop_token_ids="end")
    with pytest.raises(ValueError, match="at most 16, the positions.*max_length=17"):
        causal.generate([[5]], 17)
    with pytest.raises(ValueError, match="`max_length` must be .* at least 2"):
        seq2seq.generate([[5]], 1)
    with pytest.raises(ValueError, match="an `EncoderBackbone` with causal=True"):
        checked_decoder(object())
