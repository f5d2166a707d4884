"""Texts as a folder's `generation_config.json` has them, beside `transformers`."""

import json

import keras
import numpy as np
import pytest

from keras_bertfam import tasks
from keras_bertfam.presets.checkpoints import generation_keys, huggingface
from keras_bertfam.tasks import GenerationSettings
from tests import tiny_passages
from tests.conformance.test_hf_beam_search import KINDS, SIZE
from tests.from_transformers import randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(3, SIZE, length).tolist() for length in (5, 2, 1, 5)]
# bart-large-cnn's, but for the lengths.
NEWS = {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True, "max_length": 11}
NEWS |= {"min_length": 6, "no_repeat_ngram_size": 3, "decoder_start_token_id": 2}
NEWS |= {"forced_bos_token_id": 0, "forced_eos_token_id": 2, "eos_token_id": 2}
NEWS |= {"bos_token_id": 0, "pad_token_id": 1}
WORDS = {"max_new_tokens": 7, "eos_token_id": [4, 9], "repetition_penalty": 1.4}
WORDS |= {"bad_words_ids": [[7], [8, 5]], "suppress_tokens": [3], "pad_token_id": 1}
FILES = {
    "bart": [NEWS, {**NEWS, "num_beams": 1, "no_repeat_ngram_size": 2}],
    "t5": [{**WORDS, "decoder_start_token_id": 0, "num_beams": 3}],
    "gpt2": [{**WORDS, "min_length": 6}, {"max_length": 10, "eos_token_id": 4}],
}
CASES = [
    pytest.param(kind, file, marks=pytest.mark.slow(*["release"] * (number > 0)))
    for kind, files in FILES.items()
    for number, file in enumerate(files)
]


@pytest.fixture(scope="module")
def models():
    known = {}

    def model(kind):
        if kind not in known:
            name, arguments, _, scale = KINDS[kind]
            family = name.removesuffix("LMHeadModel")
            family = family.removesuffix("ForConditionalGeneration")
            config = getattr(transformers, f"{family}Config")
            torch.manual_seed(0)
            config = config(vocab_size=SIZE, **arguments)
            known[kind] = randomize(getattr(transformers, name)(config), scale)
            with torch.no_grad():  # texts are to end now and then
                known[kind].get_input_embeddings().weight[[2, 4, 9]] *= 2
        return known[kind]

    return model


def saved(theirs, file, folder):
    """Ours and theirs of a folder with a generation config."""
    theirs.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(file))
    cls = tasks.CausalLM if "GPT2" in type(theirs).__name__ else tasks.TextToText
    return cls.from_preset(folder), type(theirs).from_pretrained(folder).eval()


def texts_of(theirs, prompt):
    """What they write after a prompt, up to the token that ends it."""
    with torch.no_grad():
        (text,) = theirs.generate(torch.tensor([prompt])).tolist()
    first = 1 if theirs.config.is_encoder_decoder else 0
    begun = first or len(prompt)
    stop = theirs.generation_config.eos_token_id
    stop = [stop] if isinstance(stop, int) else stop
    ends = [k for k in range(begun, len(text)) if text[k] in stop]
    return text[first : ends[0] + 1 if ends else None]


@pytest.mark.parametrize(("kind", "file"), CASES)
def test_the_texts_of_a_folder(models, kind, file, tmp_path):
    ours, theirs = saved(models(kind), file, tmp_path / "theirs")
    expected = [texts_of(theirs, prompt) for prompt in PROMPTS]
    assert ours.generate(PROMPTS) == expected
    # As a preset, and written for them again.
    ours.save_to_preset(tmp_path / "ours")
    again = type(ours).from_preset(tmp_path / "ours")
    assert again.generation == ours.generation
    again.export_to_transformers(tmp_path / "again")
    theirs = type(theirs).from_pretrained(tmp_path / "again").eval()
    assert [texts_of(theirs, prompt) for prompt in PROMPTS] == expected
    assert again.generate(PROMPTS[:1]) == expected[:1]


@pytest.mark.slow
def test_what_is_told_wins(models, tmp_path):
    ours, _ = saved(models("bart"), NEWS, tmp_path)
    first, *_ = ours.generate(PROMPTS[:1])
    assert first[0] == 0 and len(first) >= 5
    plain = GenerationSettings()
    told = ours.generate(PROMPTS[:1], 6, "greedy", [], [5], plain)
    known = tasks.TextToText(ours.backbone)
    assert told == known.generate(PROMPTS[:1], 6, "greedy", [], [5])
    # A dict changes some of the settings alone.
    (found,) = ours.generate(PROMPTS[:1], settings={"forced_first_token": 6})
    assert found[0] == 6
    texts, scores = ours.generate(
        PROMPTS[:1], settings={"num_return_sequences": 2, "return_scores": True}
    )
    assert len(texts[0]) == len(scores[0]) == 2


@pytest.mark.slow
def test_the_texts_of_a_folder_with_passages(models, tmp_path):
    """A single passage is what a `TextToText` reads."""
    alone, _ = saved(models("bart"), NEWS, tmp_path)
    retriever = tasks.DualEncoder(tiny_passages.bert(), projection_dim=None)
    cls = tasks.RetrievalAugmentedGenerator
    with pytest.warns(UserWarning, match="loaded in part"):  # the retriever isn't there
        ours = cls.from_preset(tmp_path, retriever=retriever)
    assert ours.generation == alone.generation
    assert ours.get_config()["generation"] == {**alone.generation}
    source = np.array([PROMPTS[0], PROMPTS[3]], "int32")
    inputs = {"encoder_token_ids": source[:, None], "query_token_ids": source * 0 + 3}
    inputs |= {f"{k[:-9]}padding_mask": x > 0 for k, x in inputs.items()}
    vectors = np.ones((2, 1, retriever.backbone.hidden_dim), "float32")
    inputs["passage_vectors"] = vectors
    assert ours.generate(inputs, decoding="token") == alone.generate(source.tolist())
    told = {"forced_first_token": 6}
    found = ours.generate(inputs, 5, num_beams=1, settings=told)
    assert all(row[0] == 6 and len(row) <= 4 for row in found)
    assert cls(alone, None, retriever).generation == alone.generation
    for key, value in (("do_sample", True), ("num_return_sequences", 2)):
        with pytest.raises(ValueError, match=f"{key}={value}"):
            cls(ours.backbone, None, retriever, generation={key: value})


@pytest.mark.any_backend
def test_every_key_is_used_meaningless_or_named(tmp_path):
    keys = {*vars(transformers.GenerationConfig()), "return_legacy_cache"}
    meaningless = {*" ".join(generation_keys.MEANINGLESS.values()).split()}
    used, neutral = generation_keys.USED.keys(), generation_keys.NEUTRAL.keys()
    assert len(used) + len(neutral) + len(meaningless) == len(
        used | neutral | meaningless
    )
    path = tmp_path / generation_keys.GENERATION
    for key in sorted((keys | {"odd_key"}) - used):
        path.write_text(json.dumps({key: 7.5, "num_beams": 3}))
        values, named = generation_keys.read(tmp_path, {"num_beams": 2})
        assert values == {"num_beams": 3}
        assert named == ([] if key in meaningless else [f"{key}='7.5'"])
    for key, (value, *_) in generation_keys.NEUTRAL.items():
        path.write_text(json.dumps({key: value, "odd": None}))
        assert generation_keys.read(tmp_path, {}) == ({}, [])
    for key in used:
        path.write_text(json.dumps({key: {"of": "another kind"}}))
        with pytest.raises(ValueError, match=f"{key!r} in .*generation_config.json"):
            generation_keys.read(tmp_path, {})
    path.unlink()  # older folders say it in the config
    assert generation_keys.read(tmp_path, {"num_beams": 2}) == ({"num_beams": 2}, [])


@pytest.mark.any_backend
def test_what_is_not_done_is_told(models, tmp_path):
    models("gpt2").save_pretrained(tmp_path)
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({"typical_p": 0.5, "max_length": 9}))
    (note,) = huggingface.open_source(tmp_path).notes
    assert note == "In the generation config, and not done here: typical_p='0.5'."
    with pytest.warns(UserWarning, match="not done here: typical_p='0.5'"):
        model = tasks.CausalLM.from_preset(tmp_path)
    assert dict(model.generation) == {"max_length": 9}
    config = keras.saving.serialize_keras_object(model)["config"]
    assert config["generation"] == {"max_length": 9}


@pytest.mark.parametrize(
    ("generation", "message"),
    [
        ({"odd": 1}, "`generation` must have keys among .* Received: 'odd'"),
        ({"num_beams": "4"}, "'num_beams' in 'generation' must be of the type"),
        ({"num_beams": 0}, "`num_beams` must be an int of at least 1"),
        ({"do_sample": True, "num_beams": 2}, "do_sample=True and num_beams=2"),
        ({"forced_bos_token_id": 99}, "`forced_bos_token_id` .* below vocabulary_size"),
    ],
)
def test_what_cannot_be(generation, message):
    backbone = keras.saving.get_registered_object("keras_bertfam>GPT2Backbone")(
        vocabulary_size=20, num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=4
    )
    with pytest.raises(ValueError, match=message):
        tasks.CausalLM(backbone, generation=generation)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("generation", "name", "values"),
    [
        ({}, "NucleusSampler", {"k": 50, "p": 1.0, "temperature": 1.0}),
        ({"top_k": 0, "temperature": 0.7}, "RandomSampler", {"temperature": 0.7}),
        ({"top_p": 0.9, "top_k": 5}, "NucleusSampler", {"p": 0.9, "k": 5}),
    ],
)
def test_what_tokens_are_drawn_by(generation, name, values):
    from keras_bertfam.tasks.generation.defaults import default_sampler

    sampler = default_sampler({"do_sample": True, **generation})
    assert type(sampler).__name__ == name
    assert values.items() <= sampler.get_config().items()


def test_a_list_of_last_tokens(tmp_path):
    path = tmp_path / generation_keys.GENERATION
    path.write_text('{"forced_eos_token_id": [1]}')
    assert generation_keys.read(tmp_path, {}) == ({"forced_eos_token_id": 1}, [])
    path.write_text('{"forced_eos_token_id": [1, 2]}')
    assert generation_keys.read(tmp_path, {}) == ({}, ["forced_eos_token_id='[1, 2]'"])
