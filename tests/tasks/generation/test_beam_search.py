"""Beam search in tables of probabilities: by hand, by enumeration, row by row."""

import itertools

import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.tasks import GenerationSettings
from keras_bertfam.tasks.generation.beam_search import BeamSearch
from keras_bertfam.tasks.generation.defaults import default_settings, with_defaults
from keras_bertfam.tasks.generation.prompts import as_prompts
from keras_bertfam.tasks.generation.token_rules import apply_rules
from tests.tiny_text_to_text import make

# Ids: 0 is padding, 1 begins a text, 2 ends it, 3 is a and 4 b. Rows of the tables are
# the probabilities of end, a and b after the beginning, a and b.
TOY_A = {1: (0.32, 0.40, 0.28), 3: (0.2, 0.5, 0.3), 4: (0.6, 0.1, 0.3)}
TOY_B = {1: (0.5, 0.3, 0.2), 3: (0.1, 0.1, 0.8), 4: (0.5, 0.4, 0.1)}


def table_of(toy):
    table = np.full((5, 5), 1e-9, "float32")
    for row, probabilities in toy.items():
        table[row, 2:] = probabilities
    return table


def search(table, prompts, length, beams, stop=((2,),), **settings):
    """For each prompt the finished texts with their scores, as far as there are any."""
    by_place = np.ndim(table) == 3  # a table for each place
    size = table.shape[-1]
    logits = np.log(table).astype("float32").reshape(-1, size)
    logits = ops.convert_to_tensor(logits)

    def following(texts, cache, index):
        last = ops.slice(texts, [0, index - 1], [ops.shape(texts)[0], 1])
        row = last[:, 0] + (index * size if by_place else 0)
        return ops.take(logits, row, axis=0), None, cache

    prompt = np.full((len(prompts), length), -1, "int32")
    for row, ids in zip(prompt, prompts, strict=True):
        row[: len(ids)] = ids
    lengths = [*map(len, prompts)]
    texts, scores = BeamSearch(beams, settings=GenerationSettings(**settings))(
        following,
        ops.convert_to_tensor(prompt),
        (),
        ops.convert_to_tensor(np.array(min(lengths), "int32")),
        ops.convert_to_tensor(np.array(lengths, "int32")),
        ops.convert_to_tensor(
            np.resize(stop, (len(prompts), len(stop[0]))).astype("int32")
        ),
    )
    texts, scores = (ops.convert_to_numpy(x).tolist() for x in (texts, scores))
    found = []
    for row, of_row, begun in zip(texts, scores, lengths, strict=True):
        ends = [
            [k + 1 for k in range(begun, length) if text[k] in stop[0]] for text in row
        ]
        found.append(
            [
                (text[: (*end, length)[0]], pytest.approx(score, abs=1e-5))
                for text, score, end in zip(row, of_row, ends, strict=True)
                if score > -1e8
            ]
        )
    return found


@pytest.mark.parametrize(
    ("toy", "penalty", "early", "new", "expected"),
    [
        (TOY_A, 1, False, 5, "133333 -.737776 133342 -.803477"),
        (TOY_A, 1, "never", 5, "133333 -.737776 133342 -.803477"),
        (TOY_A, 1, True, 5, "142 -.891896 12 -1.139434"),
        (TOY_A, 0, False, 5, "12 -1.139434 142 -1.783791"),
        (TOY_A, 2, False, 5, "133333 -.147555 133342 -.160695"),
        (TOY_A, 2, True, 5, "142 -.445948 12 -1.139434"),
        (TOY_A, -1, False, 5, "12 -1.139434 142 -3.567583"),
        (TOY_A, 1, True, 2, "133 -.804719 142 -.891896"),
        (TOY_B, 1, False, 6, "12 -.693147 1342 -.706755"),
        (TOY_B, 1, True, 6, "12 -.693147 142 -1.151293"),
        (TOY_B, 1, "never", 6, "1343434 -.617664 134342 -.651940"),
    ],
)
def test_toys(toy, penalty, early, new, expected):
    """Two beams of the first toy, a penalty of 1: step 1 keeps a .4, end .32, so that
    the end is finished with ln .32. Of aa .2 and b-end .168 the latter is finished with
    ln(.168)/2. `True` stops here; `False` goes on, as ln(.2)/2 is above ln .32."""
    (found,) = search(
        table_of(toy), [[1]], 1 + new, 2, length_penalty=penalty, early_stopping=early
    )
    first, one, second, two = expected.split()
    pairs = [([*map(int, first)], float(one)), ([*map(int, second)], float(two))]
    assert found == pairs


def test_three_beams():
    (found,) = search(table_of(TOY_A), [[1]], 6, 3, early_stopping=True)
    assert found == [
        ([1, 3, 4, 2], -0.877030),
        ([1, 4, 2], -0.891896),
        ([1, 2], -1.139434),
    ]


@pytest.mark.parametrize("penalty", [-0.5, 0.0, 1.0, 2.0])
def test_as_all_texts_in_their_order(penalty):
    """With beams enough for all, the texts are the best of all that there are."""
    table = np.random.default_rng(3).dirichlet(np.ones(4), (5, 4)).astype("float32")
    every = []
    for count in range(1, 5):
        for new in itertools.product(range(4), repeat=count):
            # It ends with a stop token, 1 or 3, or is as long as can be.
            if {1, 3} & {*new[:-1]} or (count < 4 and new[-1] not in (1, 3)):
                continue
            text = [0, *new]
            steps = enumerate(itertools.pairwise(text), 1)
            logarithm = sum(np.log(table[place, *pair]) for place, pair in steps)
            every.append((text, logarithm / count**penalty))
    every.sort(key=lambda pair: -pair[1])
    (found,) = search(
        table,
        [[0]],
        5,
        len(every) + 5,  # more than there are texts
        ((1, 3),),
        length_penalty=penalty,
        early_stopping="never",
    )
    assert found == every


def diverse(logs, begin, length, beams, groups, penalty, early):
    """The finished texts of groups of beams, each in lists, and their scores."""
    width = beams // groups
    running = [[(0.0, [begin])] for _ in range(groups)]
    finished, closed = [[] for _ in range(groups)], [False] * groups
    for place in range(1, length):
        said = np.zeros(logs.shape[-1])
        for group in (g for g in range(groups) if not closed[g]):
            found = [
                (score + logs[text[-1], token] - penalty * said[token], [*text, token])
                for score, text in running[group]
                for token in range(logs.shape[-1])
            ]
            found = sorted(found, reverse=True)[: 2 * width]
            stops = [text[-1] == 2 for _, text in found]
            ends = [stops_here or place + 1 == length for stops_here in stops]
            finished[group] += [
                (score / place, text)
                for (score, text), end in [*zip(found, ends, strict=True)][:width]
                if end
            ]
            finished[group] = sorted(finished[group], reverse=True)[:width]
            going = [x for x, stop in zip(found, stops, strict=True) if not stop][
                :width
            ]
            running[group] = going
            for _, text in going:
                said[text[-1]] += 1
            full = len(finished[group]) == width
            hope = going[0][0] / (length - 1 if early == "never" else place)
            closed[group] = full and (early is True or hope <= finished[group][-1][0])
    return sorted((x for each in finished for x in each), reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False, "never"])
def test_groups_of_beams(early):
    rng, settings = np.random.default_rng(1), {"early_stopping": early}
    for groups in (2, 3):
        for penalty in (0.0, 0.4, 3.0):
            table = rng.dirichlet(np.ones(7), 7).astype("float32")
            settings |= {"num_beam_groups": groups, "diversity_penalty": penalty}
            prompts = [[1], [3, 4, 5]]
            found = search(table, prompts, 8, 6, **settings)
            # The second text goes on from its last token, with less room.
            for (*known, last), texts in zip(prompts, found, strict=True):
                expected = diverse(
                    np.log(table), last, 8 - len(known), 6, groups, penalty, early
                )
                assert [([*known, *text], score) for score, text in expected] == texts


@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False, "never"])
def test_rows_are_as_if_alone(early):
    table = np.random.default_rng(0).dirichlet(np.ones(9) / 3, 9) + 1e-6
    prompts = [[5, 6, 7, 8, 1], [4], [2, 2, 0], [3, 1]]
    settings = {
        "early_stopping": early,
        "repetition_penalty": 1.2,
        "no_repeat_ngram_size": 3,
        "min_new_tokens": 2,
        "bad_words": [[6], [1, 2]],
    }
    together = search(table, prompts, 9, 3, ((2, 5),), **settings)
    alone = [search(table, [row], 9, 3, ((2, 5),), **settings)[0] for row in prompts]
    assert together == alone
    assert {len(text) for row in together for text, _ in row} > {9}
    for (*begun,), row in zip(prompts, together, strict=True):
        for text, _ in row:
            new = text[len(begun) :]
            assert text[: len(begun)] == begun and 6 not in new
            assert len({*zip(text, text[1:], text[2:], strict=False)}) == len(text) - 2
            assert not {2, 5} & {*new[:2]}


def test_edges():
    table = table_of(TOY_A)
    # A beam alone is greedy search: its one text is the first that ends.
    assert search(table, [[1]], 6, 1)[0][0][0] == [1, 3, 3, 3, 3, 3]
    # All stop at once, where every token ends a text.
    every = ((0, 1, 2, 3, 4),)
    rows = search(table, [[1], [1, 3], [4]], 6, 2, every)
    assert [[len(text) for text, _ in row] for row in rows] == [
        [2] * 2,
        [3] * 2,
        [2] * 2,
    ]
    # More beams than tokens: no text comes twice, and what isn't there isn't given.
    (row,) = search(table, [[1]], 2, 9)
    assert len(row) == len({tuple(text) for text, _ in row}) == 5
    # No token may come.
    banned = [[k] for k in range(5)]
    assert search(table, [[1], [3, 3]], 6, 2, bad_words=banned) == [[], []]


def test_rules():
    scores = ops.convert_to_tensor(np.array([[2.0, -2, 4, 1]] * 2, "float32"))
    texts = ops.convert_to_tensor(np.array([[0, 1, 0, 3], [2, 2, 0, 3]], "int32"))
    starts = ops.convert_to_tensor(np.array([1, 3], "int32"))
    stop = ops.convert_to_tensor(np.array([[2, 0], [3, -2]], "int32"))

    def of(index=3, **settings):
        index = ops.convert_to_tensor(np.array(index, "int32"))
        found = apply_rules(
            scores, texts, index, starts, stop, GenerationSettings(**settings)
        )
        found = ops.convert_to_numpy(found)
        return np.where(found < -1e8, np.nan, found).tolist()

    nan = pytest.approx(np.nan, nan_ok=True)
    assert of() == [[2, -2, 4, 1]] * 2
    assert of(repetition_penalty=2.0) == [[1, -4, 4, 1], [1, -2, 2, 1]]
    assert of(no_repeat_ngram_size=1) == [[nan, nan, 4, 1], [nan, -2, nan, 1]]
    assert of(no_repeat_ngram_size=2) == [[2, nan, 4, 1], [2, -2, 4, 1]]
    assert of(2, no_repeat_ngram_size=2) == [[2, -2, 4, 1], [2, -2, nan, 1]]
    assert of(no_repeat_ngram_size=3) == of(1, no_repeat_ngram_size=4) == of()
    assert of(min_new_tokens=2) == [[2, -2, 4, 1], [2, -2, 4, nan]]
    words = [[3], [0, 1], [2, 0, 2], [1, 1, 1, 1, 0]]
    assert of(bad_words=words) == [[2, nan, 4, nan], [2, nan, nan, nan]]


@pytest.fixture(scope="module")
def causal():
    return tasks.CausalLM(make("GPT2"))


@pytest.mark.slow
def test_settings_of_generate(causal):
    prompts = [[5, 6, 7], [8]]
    settings = GenerationSettings(
        num_beams=3, num_return_sequences=2, return_scores=True
    )
    texts, scores = causal.generate(prompts, 7, "beam", settings=settings)
    assert np.shape(texts) == (2, 2, 7) and np.shape(scores) == (2, 2)
    assert all(first > second for first, second in scores)
    sampler = keras_hub.samplers.BeamSampler(num_beams=3)
    assert causal.generate(prompts, 7, sampler) == [first for first, _ in texts]
    # Each text has its own stop tokens, and rules hold for each sampler.
    plain = causal.generate(prompts, 7)
    stop = [[plain[0][3], 0], [plain[1][2]]]
    found = causal.generate(prompts, 7, stop_token_ids=stop)
    assert found == [plain[0][:4], plain[1][: plain[1].index(stop[1][0], 1) + 1]]
    rules = GenerationSettings(bad_words=[[plain[0][3]]], no_repeat_ngram_size=1)
    for sampler in ("greedy", keras_hub.samplers.TopKSampler(3, seed=1)):
        texts = causal.generate(prompts, 7, sampler, settings=rules)
        for text, prompt in zip(texts, prompts, strict=True):
            assert len({*text}) == 7 and plain[0][3] not in text[len(prompt) :]


@pytest.mark.slow
def test_samples_are_in_the_order_of_their_likelihood(causal):
    prompts, length, penalty = [[5, 6, 7], [8]], 8, 0.5
    settings = GenerationSettings(
        num_return_sequences=4, return_scores=True, length_penalty=penalty
    )
    sampler = keras_hub.samplers.TopKSampler(9, temperature=0.7, seed=1)
    texts, scores = causal.generate(prompts, length, sampler, [3, 4], settings)
    assert len({tuple(text) for row in texts for text in row}) > 4
    for prompt, row, of_row in zip(prompts, texts, scores, strict=True):
        assert of_row == sorted(of_row, reverse=True) and len(row) == 4
        for text, score in zip(row, of_row, strict=True):
            logits = causal({"token_ids": ops.array([text])}, training=False)
            logs = ops.convert_to_numpy(ops.log_softmax(logits))[0]
            new = range(len(prompt), len(text))
            total = sum(logs[place - 1, text[place]] for place in new)
            assert score == pytest.approx(total / len(new) ** penalty, abs=1e-5)
            assert len(text) == length or text[-1] in (3, 4)
    # What is sampled doesn't depend on whether it is scored.
    again = keras_hub.samplers.TopKSampler(9, temperature=0.7, seed=1)
    settings = settings.replace(num_return_sequences=1)
    scored, of_texts = causal.generate(prompts, length, again, [3, 4], settings)
    again = keras_hub.samplers.TopKSampler(9, temperature=0.7, seed=1)
    assert scored == causal.generate(prompts, length, again, [3, 4])
    assert len(of_texts) == 2 and max(of_texts) < 0
    greedy = causal.generate(prompts, length, settings=settings)[0]
    assert greedy == causal.generate(prompts, length)


def test_errors(causal):
    for arguments, message in (
        ({"min_new_tokens": -1}, "`min_new_tokens` must be an int of at least 0"),
        ({"num_beams": 0}, "`num_beams` must be an int of at least 1"),
        ({"diversity_penalty": 0.5}, "0 without groups of beams"),
        ({"repetition_penalty": 0}, "`repetition_penalty` must be positive"),
        ({"repetition_penalty": np.nan}, "`repetition_penalty` must be a finite numb"),
        ({"length_penalty": "1"}, "`length_penalty` must be a finite number. .*'1'"),
        ({"num_return_sequences": True}, "`num_return_sequences` must be an int"),
        ({"early_stopping": "always"}, "`early_stopping` must be .*'always'"),
        ({"bad_words": "no"}, "`bad_words` must be a sequence of words"),
        ({"bad_words": [[]]}, "sequences of ids that aren't empty"),
    ):
        with pytest.raises(ValueError, match=message):
            GenerationSettings(**arguments)
    for sampler, stop, arguments, message in (
        ("beam", None, {"num_return_sequences": 6}, "Expected: at most 5"),
        ("greedy", None, {"num_return_sequences": 2}, "Expected: at most 1"),
        ("contrastive", None, {"return_scores": True}, "must be `False` for a sampler"),
        ("beam", None, {"num_beam_groups": 2}, "must divide the number of beams, 5"),
        ("beam", None, {"bad_words": ["no"]}, "ids for a task without a preproc"),
        ("beam", [[1], [2]], {}, "each of the 1 texts. Received: 2 sequences"),
        ("beam", [[1], 2], {}, "must be a sequence of ids, or of sequences"),
    ):
        with pytest.raises(ValueError, match=message):
            settings = GenerationSettings(**arguments)
            causal.generate([[5]], 6, sampler, stop, settings)
    unlimited = tasks.TextToText(make("T5"))
    with pytest.raises(ValueError, match="at most 16384, `max_tokens` of the settings"):
        unlimited.generate([[5]], 10**6)


def test_prompts_are_texts_in_whatever_form():
    for one in ("é", "é".encode(), tf.constant("é"), np.array("é"), np.str_("é")):
        assert as_prompts(one) == "é"
    for many in (["a", b"b"], tf.constant(["a", "b"]), np.array(["a", b"b"], object)):
        assert as_prompts(many) == ["a", "b"]
    assert as_prompts([[1, 2], [3]]) == [[1, 2], [3]]
    array = np.array([[1, 2]])
    assert as_prompts(array) is array
    assert as_prompts({"token_ids": array})["token_ids"] is array


def test_several_beams_are_a_beam_search(causal):
    given = {"num_beams": 3, "length_penalty": 0.5}
    assert causal.generate([[5, 6]], 8, settings=given) == causal.generate(
        [[5, 6]], 8, "beam", settings=given
    )
    for name, value in (("num_beams", 3), ("early_stopping", True)):
        with pytest.raises(ValueError, match=f"`{name}` must be left out of the sett"):
            causal.generate([[5]], 6, "greedy", settings={name: value})
    with pytest.raises(ValueError, match="`early_stopping` must be left out"):
        causal.generate([[5]], 6, settings={"early_stopping": True})
    drawing = tasks.CausalLM(causal.backbone, generation={"do_sample": True})
    with pytest.raises(ValueError, match="`num_beams` must be 1 without a `sampler`"):
        drawing.generate([[5]], 6, settings={"num_beams": 2})


@pytest.mark.slow
def test_min_new_tokens_take_the_place_of_min_length(causal):
    usual = {"min_length": 8, "max_length": 10}
    for given, least in ((None, 8), ({"min_new_tokens": 2}, 0), ({"num_beams": 1}, 8)):
        assert with_defaults(None, given, usual)[1].min_length == least
    both = {"min_new_tokens": 0, "min_length": 3}
    assert with_defaults(None, both, usual)[1].min_length == 3
    said = default_settings({**usual, "min_new_tokens": 1})
    assert (said.min_length, said.min_new_tokens) == (0, 1)
    new = causal.generate([[5, 6]], 10, stop_token_ids=[3])[0][2]
    model = tasks.CausalLM(causal.backbone, generation=usual)
    model.set_weights(causal.get_weights())
    (text,) = model.generate([[5, 6]], None, None, [new], {"min_new_tokens": 1})
    assert text[2] != new
    assert len(model.generate([[5, 6]], stop_token_ids=[new])[0]) >= 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stop_token_ids": -1}, "`stop_token_ids` must have ids of at least 0"),
        ({"sampler": keras_hub.samplers.TopKSampler(k=10**4)}, "`k` of the sampler"),
        (
            {"sampler": keras_hub.samplers.ContrastiveSampler(k=2, alpha=1.5)},
            r"`alpha` of the sampler must be in \[0, 1\]",
        ),
        (
            {"sampler": "contrastive", "settings": {"forced_last_token": 3}},
            "`forced_last_token` must be `None` for a contrastive search",
        ),
    ],
)
def test_what_a_sampler_cannot_do(causal, arguments, message):
    with pytest.raises(ValueError, match=message):
        causal.generate([[5]], 6, **arguments)


def test_one_stop_token_may_be_a_number(causal):
    texts = [causal.generate([[5, 6]], 10, stop_token_ids=k) for k in (7, [7])]
    assert texts[0] == texts[1]


def test_wrong_first_tokens():
    model = tasks.TextToText(make("T5"))
    for wrong in ([], [10**6], [-1]):
        with pytest.raises(ValueError, match="`start_token_ids` must be one id at lea"):
            model.generate([[5]], 6, start_token_ids=wrong)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", {"temperature": 0.0}),
        ("p", {"top_p": 1.5, "top_k": 0}),
        ("k", {"top_k": -1}),
    ],
)
def test_numbers_with_which_nothing_is_drawn(causal, name, values):
    model = tasks.CausalLM(causal.backbone, generation={"do_sample": True, **values})
    with pytest.raises(ValueError, match=f"`{name}` of the sampler must be"):
        model.generate([[5]], 6)
    assert model.generate([[5]], 6, "greedy")


def test_eager_after_compiled(causal):
    causal.generate([[5, 6]], 8)
    before = len(causal.compiled_writers.known)
    causal.run_eagerly = True
    try:
        causal.generate([[5, 6]], 8)
        assert len(causal.compiled_writers.known) == before + 1
    finally:
        causal.run_eagerly = False
