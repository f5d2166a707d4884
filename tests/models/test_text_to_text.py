"""GPT, GPT-2, T5 and BART: sizes, and who sees what."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import models
from tests.compiled import compiled
from tests.tiny_families import ENCODERS, backbone_of
from tests.tiny_text_to_text import SIZES, ids, make

T5_1_1 = (76_961_152, 247_577_856, 783_150_080, 2_849_757_184, 11_135_332_352)
T5_NAMES = ("small", "base", "large", "xl", "xxl")
COUNTS = {
    "gpt_base_en": 116_534_784,
    "gpt2_base_en": 124_439_808,
    "gpt2_medium_en": 354_823_168,
    "gpt2_large_en": 774_030_080,
    "gpt2_extra_large_en": 1_557_611_200,
    "distil_gpt2_en": 81_912_576,
    "t5_small_multi": 60_506_624,
    "t5_base_multi": 222_903_552,
    "t5_large_multi": 737_668_096,
    "t5_3b_multi": 2_851_598_336,
    "t5_11b_multi": 11_307_321_344,
    **{f"t5_1.1_{n}": c for n, c in zip(T5_NAMES, T5_1_1, strict=True)},
    **{f"flan_{n}_multi": c for n, c in zip(T5_NAMES, T5_1_1, strict=True)},
    "bart_base_en": 139_420_416,
    "bart_large_en": 406_291_456,
    # No weights were published, nor exact counts: these are of table 2.1 as printed.
    "gpt3_small": 125_226_240,
    "gpt3_xl": 1_517_123_584,
    "gpt3_175b": 174_604_259_328,
}
CAUSAL = ("GPT", "GPT2", "ModernBertDecoder", "Decoder")
SEQ2SEQ = ("T5", "T5Gated", "Bart")
LENGTH, COUNT = 7, 5


def array(x):
    return ops.convert_to_numpy(x)


def output(backbone, inputs, **kwargs):
    outputs = compiled(backbone)(inputs, **kwargs)
    name = "sequence_output"
    return array(outputs.get(name, outputs.get(f"decoder_{name}")))


def two_texts(**kwargs):
    names = ("encoder_token_ids", "decoder_token_ids")
    both = ids(1, LENGTH), ids(1, COUNT, seed=1)
    return {**dict(zip(names, both, strict=True)), **kwargs}


@pytest.mark.slow
@pytest.mark.any_backend
def test_parameter_counts():
    for cls in ("GPT", "GPT2", "T5", "Bart"):
        backbone = getattr(models, f"{cls}Backbone")
        for name, size in backbone.presets_table.items():
            if name in COUNTS:
                assert backbone.parameter_count(**size) == COUNTS[name], name
            assert name in COUNTS or name.startswith("gpt3_")


def seen_by(function, tokens):
    """For each token, which outputs change when it does: `[output, token]`."""
    before, columns = function(tokens), []
    for place in range(tokens.shape[1]):
        other = tokens.copy()
        other[0, place] = 3 + (other[0, place] + 5) % 27
        columns.append(np.abs(function(other) - before)[0].max(-1) > 1e-6)
    return np.stack(columns, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUSAL)
def test_a_token_sees_those_before_it_and_a_prefix(name):
    backbone = make(name)
    plain = seen_by(lambda t: output(backbone, {"token_ids": t}), ids(1, LENGTH))
    expected = np.tril(np.ones((LENGTH, LENGTH), bool))
    np.testing.assert_array_equal(plain, expected)
    prefix = np.array([[1, 1, 1, 0, 0, 0, 0]])
    shown = seen_by(
        lambda t: output(backbone, {"token_ids": t, "prefix_mask": prefix}),
        ids(1, LENGTH),
    )
    np.testing.assert_array_equal(shown, expected | prefix.astype(bool))


def test_an_encoder_from_left_to_right():
    backbone = make("Bert", causal=True)
    seen = seen_by(lambda t: output(backbone, {"token_ids": t}), ids(1, LENGTH))
    np.testing.assert_array_equal(seen, np.tril(np.ones((LENGTH, LENGTH), bool)))
    assert type(backbone).from_config(backbone.get_config()).causal


@pytest.mark.slow
@pytest.mark.parametrize("name", SEQ2SEQ)
def test_a_decoder_sees_all_of_the_other_text(name):
    backbone = make(name)
    other = seen_by(
        lambda t: output(backbone, two_texts(encoder_token_ids=t)), ids(1, LENGTH)
    )
    assert other.all()
    own = seen_by(
        lambda t: output(backbone, two_texts(decoder_token_ids=t)),
        ids(1, COUNT, seed=1),
    )
    np.testing.assert_array_equal(own, np.tril(np.ones((COUNT, COUNT), bool)))


def test_packed_rows_are_those_of_each_text_alone():
    backbone = make("GPT2")
    first, second = ids(1, 4), ids(1, 3, seed=1)
    row = {"token_ids": np.concatenate([first, second, [[0]]], 1).astype("int32")}
    row["sequence_ids"] = np.array([[1, 1, 1, 1, 2, 2, 2, 0]])
    row["padding_mask"] = np.array([[1, 1, 1, 1, 1, 1, 1, 0]])
    packed = output(backbone, row)
    assert np.isfinite(packed).all()
    for part, place in ((first, slice(0, 4)), (second, slice(4, 7))):
        alone = output(backbone, {"token_ids": part})
        np.testing.assert_allclose(packed[:, place], alone, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["T5", "Bart"])
def test_packed_texts_are_those_of_each_pair_alone(name):
    """Also where the decoder's texts begin and end elsewhere than the encoder's."""
    backbone = make(name)
    sizes = ((4, 2), (3, 5))
    pairs = [(ids(1, a, seed=a), ids(1, b, seed=9 + b)) for a, b in sizes]
    row = {}
    for number, side in enumerate(("encoder", "decoder")):
        pad, parts = np.zeros((1, 2), "int32"), [pair[number] for pair in pairs]
        numbers = [np.full((1, p.shape[1]), k + 1) for k, p in enumerate(parts)]
        row[f"{side}_token_ids"] = np.concatenate([*parts, pad], 1)
        row[f"{side}_sequence_ids"] = np.concatenate([*numbers, pad], 1)
        row[f"{side}_padding_mask"] = row[f"{side}_sequence_ids"] > 0
    packed = output(backbone, row)
    assert np.isfinite(packed).all()
    places = (slice(0, 2), slice(2, 7))
    for (source, target), place in zip(pairs, places, strict=True):
        alone = {"encoder_token_ids": source, "decoder_token_ids": target}
        np.testing.assert_allclose(packed[:, place], output(backbone, alone), atol=1e-5)
    at = np.array([[6, 0, 3]])
    some = array(backbone(row, positions=at)["decoder_sequence_output"])
    np.testing.assert_allclose(some, packed[:, at[0]], atol=1e-5)
    del row["encoder_sequence_ids"]
    with pytest.raises(ValueError, match="`encoder_sequence_ids` and `decoder_"):
        backbone(row)


def test_states_at_positions():
    backbone = make("GPT2")
    tokens, at = ids(2, LENGTH), np.array([[6, 0], [3, 3]])
    every = array(backbone({"token_ids": tokens})["sequence_output"])
    some = backbone({"token_ids": tokens}, positions=at, return_attention=True)
    np.testing.assert_allclose(
        array(some["sequence_output"]), every[np.arange(2)[:, None], at], atol=1e-5
    )
    scores = array(some["attentions"][-1])
    assert scores.shape == (2, 2, 2, LENGTH) and scores[0, :, 1, 1:].max() == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["GPT", "T5", "Bart"])
def test_a_cached_text_is_the_whole_one(name):
    backbone = make(name)
    arguments, decoder = {}, backbone
    tokens = ids(2, 6)
    if name == "GPT":
        whole = array(backbone({"token_ids": tokens})["sequence_output"])
    else:
        decoder = backbone.decoder
        other = {"encoder_token_ids": ids(2, LENGTH, seed=2)}
        outputs = backbone({**other, "decoder_token_ids": tokens})
        whole = array(outputs["decoder_sequence_output"])
        states = outputs["encoder_sequence_output"]
        arguments["context"] = decoder.project_context(states)
    cache, found = decoder.empty_cache(2, 8), []
    for place in (slice(0, 3), slice(3, 4), slice(4, 6)):
        outputs = decoder(
            {"token_ids": tokens[:, place]},
            cache=cache,
            cache_index=place.start,
            **arguments,
        )
        cache = outputs["cache"]
        found.append(array(outputs["sequence_output"]))
    np.testing.assert_allclose(np.concatenate(found, 1), whole, atol=1e-5)


def test_disentangled_attention_is_not_causal():
    for family in ("Deberta", "DebertaV2"):
        with pytest.raises(ValueError, match="`causal` must be left out"):
            backbone_of(family, causal=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", [name for name in ENCODERS if not name.startswith("Deberta")]
)
def test_a_cached_text_of_a_causal_encoder_is_the_whole_one(family):
    backbone = backbone_of(family, causal=True, max_global_tokens=0)
    tokens = ids(2, 6)
    # Padding before a text moves its positions where these count tokens.
    mask = np.array([[1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1, 1]], bool)
    names = {"padding_mask": mask[:, :6], "token_ids": tokens}
    whole = array(backbone(names, return_pooled=False)["sequence_output"])
    cache, found = backbone.empty_cache(2, 8), []
    for place in (slice(0, 3), slice(3, 4), slice(4, 6)):
        part = {"token_ids": tokens[:, place], "padding_mask": mask}
        outputs = backbone(part, cache=cache, cache_index=place.start)
        cache = outputs["cache"]
        found.append(array(outputs["sequence_output"]))
    kept = mask[:, :6]
    np.testing.assert_allclose(np.concatenate(found, 1)[kept], whole[kept], atol=1e-4)


def test_errors():
    decoder = make("GPT")
    states = np.zeros((1, 4, 8), "float32")
    tokens = {"token_ids": ids(1, 3)}
    with pytest.raises(ValueError, match="`context` must be `None` .*=False"):
        decoder(tokens, context=states)
    seq2seq = make("T5")
    with pytest.raises(ValueError, match="`context` must be given .*=True"):
        seq2seq.decoder(tokens)
    free = make("GPT", causal=False)
    with pytest.raises(ValueError, match="`cache` must be `None` .*causal=False"):
        free(tokens, cache=free.empty_cache(1, 4))
    with pytest.raises(ValueError, match="`encoder_token_ids` and `decoder_token_ids`"):
        seq2seq({"encoder_token_ids": ids(1, 3)})
    with pytest.raises(ValueError, match="`decoder_token_ids` must be in .*to 30"):
        seq2seq(two_texts(decoder_token_ids=np.array([[30]])))
    with pytest.raises(ValueError, match="longer than there are positions"):
        decoder({"token_ids": ids(1, 17)})


@pytest.mark.parametrize("name", ["GPT2", "T5Gated", "Bart"])
def test_config_layers_to_freeze_and_lora(name):
    backbone = make(name, num_decoder_layers=1) if name == "Bart" else make(name)
    again = type(backbone).from_config(backbone.get_config())
    assert again.get_config() == backbone.get_config()
    assert again.count_params() == backbone.count_params()
    blocks = {"GPT2": 2, "T5Gated": 4, "Bart": 3}[name]
    backbone.freeze(layers=blocks)
    last = {v.path for v in backbone.trainable_variables}
    assert all("final_norm" in p or "relative_bias" in p for p in last)
    again.enable_lora(2)
    adapted = {v.path.split("/")[-2] for v in again.trainable_variables}
    assert adapted == ({"qkv"} if name == "GPT2" else {"qkv", "query", "key_value"})


def test_initial_values_of_t5():
    keras.utils.set_random_seed(0)
    sizes = {**SIZES, "vocabulary_size": 500, "hidden_dim": 64, "intermediate_dim": 256}
    backbone = models.T5Backbone(**sizes, head_dim=16, tie_embeddings=False)
    block = backbone.encoder.encoder.block(0)
    kernel = array(block[0].sublayer.qkv.kernel)

    def spread(x):
        return float(np.std(array(x)))

    assert spread(backbone.token_embedding.embeddings) == pytest.approx(1, rel=0.05)
    output_table = backbone.token_embedding.reverse_embeddings
    assert spread(output_table) == pytest.approx(64**-0.5, rel=0.05)
    # Queries also by the root of a head's width, which scores aren't divided by.
    assert spread(kernel[:, :32]) == pytest.approx(64**-0.5 / 4, rel=0.1)
    assert spread(kernel[:, 32:]) == pytest.approx(64**-0.5, rel=0.1)
    output = block[-1].sublayer.output_dense.kernel
    assert spread(output) == pytest.approx(256**-0.5, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision(dtype):
    """Also rows of nothing but padding, and keys that no query sees."""
    if dtype == "mixed_float16" and keras.backend.backend() == "jax":
        pytest.skip("JAX has no such products on CPUs")
    inputs = two_texts(encoder_padding_mask=np.zeros((1, LENGTH), bool))
    for mask in (inputs, two_texts(encoder_padding_mask=np.arange(LENGTH)[None] > 3)):
        exact, half = (output(make("T5", dtype=d), mask) for d in ("float32", dtype))
        assert np.isfinite(half).all()
        if mask is not inputs:
            assert np.abs(half - exact).max() < 0.05 * np.abs(exact).max()
