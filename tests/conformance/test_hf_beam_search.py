"""Beam search against `generate` of `transformers`, text by text and score by score."""

import numpy as np
import pytest

from keras_bertfam import tasks
from keras_bertfam.tasks import GenerationSettings
from tests.from_transformers import convert, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZE, LENGTH, BEAMS = 20, 11, 3
GPT2 = {"n_embd": 12, "n_layer": 1, "n_head": 3, "n_positions": 12, "n_inner": 16}
T5 = {"d_model": 10, "d_kv": 3, "d_ff": 14, "num_layers": 1, "num_heads": 2}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 5}
BART = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1}
BART |= {f"{side}_ffn_dim": 12 for side in ("encoder", "decoder")}
BART |= {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
BART["max_position_embeddings"] = 12
MODERN = {"hidden_size": 12, "intermediate_size": 16, "num_attention_heads": 3}
MODERN |= {"num_hidden_layers": 2, "max_position_embeddings": 12, "pad_token_id": 0}
MODERN |= {"local_attention": 6}
KINDS = {
    "gpt2": ("GPT2LMHeadModel", GPT2, tasks.CausalLM, 0.5),
    "modernbert": ("ModernBertDecoderForCausalLM", MODERN, tasks.CausalLM, 0.5),
    "t5": ("T5ForConditionalGeneration", T5, tasks.TextToText, 0.6),
    "bart": ("BartForConditionalGeneration", BART, tasks.TextToText, 0.3),
}
RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(3, SIZE, length).tolist() for length in (6, 2, 1, 4)]
STOP = [4, 9]
RULES = {
    "none": {},
    "words": {
        "min_new_tokens": 3,
        "repetition_penalty": 1.4,
        "no_repeat_ngram_size": 2,
        "bad_words": [[7], [8, 5], [3, 3], [6, 11, 12]],
    },
}
SEARCHES = [
    {"length_penalty": penalty, "early_stopping": early}
    for penalty, early in ((1.0, False), (0.0, True), (2.0, "never"), (-1.0, False))
]
# Each is compiled on its own.
CASES = [("gpt2", "none", SEARCHES[:2]), ("gpt2", "words", SEARCHES[2:])]
CASES += [("modernbert", "words", SEARCHES[:1])]
CASES += [("t5", "words", SEARCHES[:1]), ("t5", "none", SEARCHES[3:])]
CASES += [("bart", "none", SEARCHES[:1]), ("bart", "words", SEARCHES[1:2])]


@pytest.fixture(scope="module")
def pairs():
    """Their model and ours by kind, made when they are asked for."""
    known = {}

    def pair(kind):
        if kind not in known:
            name, arguments, cls, scale = KINDS[kind]
            family = name.removesuffix("LMHeadModel")
            family = family.removesuffix("ForConditionalGeneration")
            family = family.removesuffix("ForCausalLM")
            config = getattr(transformers, f"{family}Config")
            torch.manual_seed(0)
            config = config(vocab_size=SIZE, **arguments)
            theirs = randomize(getattr(transformers, name)(config), scale)
            with torch.no_grad():  # texts are to end now and then
                theirs.get_input_embeddings().weight[STOP] *= 2
            ours = convert(cls, theirs)
            config = theirs.generation_config
            config.eos_token_id, config.pad_token_id = STOP, 1
            config.forced_eos_token_id = None
            if cls is not tasks.CausalLM:
                config.decoder_start_token_id = {"t5": 0, "bart": 2}[kind]
            known[kind] = theirs, ours
        return known[kind]

    return pair


def their_texts(theirs, kind, prompt, **arguments):
    """The texts of one prompt and their scores; each ends with a stop token."""
    words = arguments.pop("bad_words", None)
    with torch.no_grad():
        found = theirs.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
            max_length=LENGTH,
            do_sample=False,
            bad_words_ids=words,
            return_dict_in_generate=True,
            output_scores=True,
            **arguments,
        )
    causal = KINDS[kind][2] is tasks.CausalLM
    first = 0 if causal else 1
    begun = len(prompt) if causal else first
    texts = []
    for text in found.sequences.tolist():
        ends = [k for k in range(begun, len(text)) if text[k] in STOP]
        texts.append(text[first : ends[0] + 1 if ends else None])
    scores = getattr(found, "sequences_scores", None)
    return texts, None if scores is None else scores.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rules", "searches"), CASES)
def test_texts_and_scores(pairs, kind, rules, searches):
    theirs, ours = pairs(kind)
    rules, lengths = RULES[rules], set()
    for search in searches:
        given = {**rules, **search, "num_beams": BEAMS, "num_return_sequences": BEAMS}
        settings = GenerationSettings(return_scores=True, **given)
        texts, scores = ours.generate(PROMPTS, LENGTH, "beam", STOP, settings=settings)
        for prompt, rows, ours_scores in zip(PROMPTS, texts, scores, strict=True):
            expected, their_scores = their_texts(theirs, kind, prompt, **given)
            assert rows == expected, (search, prompt)
            np.testing.assert_allclose(ours_scores, their_scores, rtol=2e-4)
            lengths |= {len(row) for row in rows}
    assert len(lengths) > 1  # some end


@pytest.mark.slow("release")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rules", RULES)
def test_texts_and_scores_of_any_search(pairs, kind, rules):
    searches = [
        {"length_penalty": penalty, "early_stopping": early}
        for penalty in (-1.0, 0.0, 1.0, 2.0)
        for early in (True, False, "never")
    ]
    test_texts_and_scores(pairs, kind, rules, searches)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "bart"])
def test_greedy_texts(pairs, kind):
    theirs, ours = pairs(kind)
    settings = GenerationSettings(**RULES["words"])
    texts = ours.generate(PROMPTS, LENGTH, "greedy", STOP, settings=settings)
    for prompt, text in zip(PROMPTS, texts, strict=True):
        expected, _ = their_texts(theirs, kind, prompt, **RULES["words"])
        assert [text] == expected
