"""GPT, GPT-2, T5 and BART against `transformers`: states, logits, folders."""

import json
import pathlib

import keras
import keras_hub
import numpy as np
import pytest

from keras_bertfam import models, tasks
from keras_bertfam.layers.attention.positions import RelativePositionBias
from keras_bertfam.presets import CheckpointError
from tests.compiled import compiled
from tests.from_transformers import convert, max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

GPT = {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 12}
T5 = {"d_model": 10, "d_kv": 3, "d_ff": 14, "num_layers": 2, "num_heads": 2}
T5 |= {"num_decoder_layers": 3, "relative_attention_num_buckets": 8}
T5 |= {"relative_attention_max_distance": 5}
BART = {"d_model": 8, "encoder_layers": 2, "decoder_layers": 1}
BART |= {f"{side}_ffn_dim": 12 for side in ("encoder", "decoder")}
BART |= {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
BART["max_position_embeddings"] = 12
# Rows of 7 are longer than the windows of 3 tokens.
MODERN = {"hidden_size": 12, "intermediate_size": 10, "num_attention_heads": 3}
MODERN |= {"num_hidden_layers": 3, "max_position_embeddings": 12, "pad_token_id": 0}
MODERN |= {"local_attention": 6}
# Class of the language model, config, our task.
KINDS = {
    "gpt": ("OpenAIGPTLMHeadModel", GPT, tasks.CausalLM),
    "gpt2": ("GPT2LMHeadModel", {**GPT, "n_inner": 17}, tasks.CausalLM),
    "modernbert": ("ModernBertDecoderForCausalLM", MODERN, tasks.CausalLM),
    "t5": ("T5ForConditionalGeneration", T5, tasks.TextToText),
    "t5_1.1": (
        "T5ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        tasks.TextToText,
    ),
    "bart": ("BartForConditionalGeneration", BART, tasks.TextToText),
}
# Odd lengths; padding on neither side, on the right and on the left.
MASK = np.array([[1] * 7, [1] * 4 + [0] * 3, [0] * 2 + [1] * 5])
PADDED_AT_THE_RIGHT = np.array([[1], [1], [0]])
DECODER_MASK = np.array([[1] * 5, [1] * 3 + [0] * 2, [0] + [1] * 4])
RNG = np.random.default_rng(0)
IDS = RNG.integers(3, 20, MASK.shape).astype("int32")
DECODER_IDS = RNG.integers(3, 20, DECODER_MASK.shape).astype("int32")


def make_theirs(kind):
    name, arguments, _ = KINDS[kind]
    family = name.removesuffix("LMHeadModel").removesuffix("ForConditionalGeneration")
    family = family.removesuffix("ForCausalLM")
    config = getattr(transformers, f"{family}Config")(vocab_size=20, **arguments)
    model = getattr(transformers, name)(config)
    if kind == "t5_1.1":  # `transformers` 5 makes them as tied
        table = torch.randn(20, arguments["d_model"])
        model.lm_head.weight = torch.nn.Parameter(table)
    return randomize(model, 0.1)


def is_causal(kind):
    return KINDS[kind][2] is tasks.CausalLM


def batch(kind):
    """Inputs of ours and theirs."""
    long = [torch.tensor(x).long() for x in (IDS, MASK, DECODER_IDS, DECODER_MASK)]
    if is_causal(kind):
        ours = {"token_ids": IDS, "padding_mask": MASK}
        return ours, {"input_ids": long[0], "attention_mask": long[1]}
    ours = {"encoder_token_ids": IDS, "encoder_padding_mask": MASK}
    ours |= {"decoder_token_ids": DECODER_IDS, "decoder_padding_mask": DECODER_MASK}
    names = ("input_ids", "attention_mask", "decoder_input_ids")
    names += ("decoder_attention_mask",)
    return ours, dict(zip(names, long, strict=True))


def arrays(model):
    return [keras.ops.convert_to_numpy(v) for v in model.weights]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_states_logits_and_folders(kind, tmp_path):
    theirs, (x, inputs) = make_theirs(kind), batch(kind)
    cls = KINDS[kind][2]
    theirs.save_pretrained(tmp_path / "theirs")
    ours = cls.from_preset(str(tmp_path / "theirs"))
    with torch.no_grad():
        expected = theirs(**inputs, output_hidden_states=True)
    outputs = compiled(ours.backbone)(x, return_hidden_states=True)
    sides = {"": MASK} if is_causal(kind) else {}
    sides = sides or {"encoder_": MASK, "decoder_": DECODER_MASK}
    if kind == "bart":  # its positions are columns there; fairseq and we count tokens
        sides = {side: mask * PADDED_AT_THE_RIGHT for side, mask in sides.items()}
    for side, mask in sides.items():
        name = f"{side}hidden_states"
        pairs = zip(outputs[name], getattr(expected, name), strict=True)
        for state, target in pairs:
            assert max_difference(state, target, mask.astype(bool)) < 1e-5
    logits = compiled(ours)(x)
    assert max_difference(logits, expected.logits, mask.astype(bool)) < 1e-4

    ours.export_to_transformers(tmp_path / "ours")
    again, info = type(theirs).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info.values())
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    with torch.no_grad():
        assert torch.equal(again(**inputs).logits, expected.logits)
    config, other = (
        json.loads((tmp_path / name / "config.json").read_text())
        for name in ("theirs", "ours")
    )
    same = {key: value for key, value in config.items() if key in other}
    same.pop("tie_word_embeddings", None)  # `transformers` 5 always writes "tied"
    assert {**other, **same, "dtype": "float32"} == other
    last = cls.from_preset(str(tmp_path / "ours"))
    ours.save_to_preset(str(tmp_path / "preset"))
    kept = cls.from_preset(str(tmp_path / "preset"), preprocessor=None)
    for first, *others in zip(*map(arrays, (ours, last, kept)), strict=True):
        for second in others:
            np.testing.assert_array_equal(first, second)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("kind", KINDS)
def test_backbones_alone(kind, tmp_path):
    theirs = make_theirs(kind)
    base = theirs.base_model if hasattr(theirs, "transformer") else None
    base = theirs.model if kind in ("bart", "modernbert") else base
    if base is None:  # T5 has no model within the model
        base = transformers.T5Model(theirs.config)
        base.load_state_dict(theirs.state_dict(), strict=False)
    cls = {
        "gpt": models.GPTBackbone,
        "gpt2": models.GPT2Backbone,
        "bart": models.BartBackbone,
        "modernbert": models.ModernBertDecoderBackbone,
    }.get(kind, models.T5Backbone)
    base.save_pretrained(tmp_path / "theirs")
    ours = models.Backbone.from_preset(str(tmp_path / "theirs"))
    assert type(ours) is cls and getattr(ours, "tie_embeddings", True)
    ours.export_to_transformers(tmp_path / "ours")
    again, info = type(base).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info.values())
    for name, tensor in base.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


@pytest.mark.any_backend
@pytest.mark.parametrize("bidirectional", [True, False])
def test_every_bucket(bidirectional):
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = np.arange(-300, 300)
    for buckets, longest in ((32, 128), (8, 5), (16, 40)):
        layer = RelativePositionBias(1, buckets, longest, bidirectional)
        expected = T5Attention._relative_position_bucket(
            torch.tensor(-distances), bidirectional, buckets, longest
        )
        assert max_difference(layer.bucket(distances), expected) == 0


@pytest.mark.any_backend
def test_old_files_and_other_models(tmp_path):
    """What older files hold besides, and configs of no model here."""
    theirs = make_theirs("gpt2")
    state = {
        name.removeprefix("transformer."): tensor
        for name, tensor in theirs.state_dict().items()
        if name != "lm_head.weight"
    }
    state["h.0.attn.bias"] = torch.ones(1, 1, 12, 12)
    state["h.1.attn.masked_bias"] = torch.tensor(-1e4)
    theirs.config.save_pretrained(tmp_path)
    weights = tmp_path / "pytorch_model.bin"
    torch.save(state, weights)
    ours = tasks.CausalLM.from_preset(str(tmp_path))  # without a warning
    with torch.no_grad():
        expected = theirs(torch.tensor(IDS).long()).logits
    assert max_difference(ours({"token_ids": IDS}), expected) < 1e-4
    config = json.loads((tmp_path / "config.json").read_text())
    for change, message in (
        ({"embd_pdrop": 0.2}, "'embd_pdrop' to be 0.1, as under its other name"),
        ({"scale_attn_by_inverse_layer_idx": True}, "'scale_attn_by.* to be False"),
        ({"activation_function": "mish"}, "'activation_function' to be one of"),
    ):
        pathlib.Path(tmp_path, "config.json").write_text(json.dumps(config | change))
        with pytest.raises(CheckpointError, match=message):
            models.GPT2Backbone.from_preset(str(tmp_path))


@pytest.mark.slow
@pytest.mark.any_backend
def test_bias_of_bart_and_feed_forward_of_t5(tmp_path):
    theirs = make_theirs("bart")
    theirs.final_logits_bias += 1
    with pytest.raises(CheckpointError, match="'final_logits_bias' .* must be zero"):
        convert(tasks.TextToText, theirs)
    theirs = make_theirs("t5")
    theirs.config.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for key in ("dense_act_fn", "is_gated_act"):  # which say the same
        del config[key]
    for name, (activation, gated) in {
        "gelu": ("gelu", False),
        "gated-gelu": ("gelu_tanh", True),
        "gated-silu": ("silu", True),
    }.items():
        other = {**config, "feed_forward_proj": name}
        pathlib.Path(tmp_path, "config.json").write_text(json.dumps(other))
        backbone = models.T5Backbone.from_preset(str(tmp_path), load_weights=False)
        assert (backbone.activation, backbone.gated) == (activation, gated)


@pytest.mark.any_backend
def test_no_model_of_transformers():
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8)

    def backbone(cls, **kwargs):
        return cls(vocabulary_size=9, **{**sizes, **kwargs})

    encoder = backbone(models.BertBackbone, causal=True)
    for model, message in (
        (backbone(models.GPTBackbone), "intermediate_dim=8"),
        (backbone(models.GPT2Backbone, gated=True), "gated=True"),
        (backbone(models.GPT2Backbone, causal=False), "causal=False"),
        (backbone(models.T5Backbone, initializer_range=0.02), "initializer_range=0.02"),
        (backbone(models.T5Backbone, activation="mish"), "'feed_forward_proj'"),
        (backbone(models.BartBackbone, norm_first=True), "norm_first=True"),
        (encoder, "causal=True"),
        (tasks.CausalLM(encoder), "causal=True"),
    ):
        with pytest.raises(ValueError, match=message):
            model.export_to_transformers("nowhere")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "beams"),
    [("gpt2", 1), ("gpt2", 3), ("t5_1.1", 1), ("bart", 3), ("modernbert", 3)]
    + [
        pytest.param(*p, marks=[pytest.mark.slow, pytest.mark.any_backend])
        for p in (("t5", 3), ("gpt", 1))
    ],
)
def test_generated_tokens(kind, beams):
    theirs = randomize(make_theirs(kind), 0.4)
    config, end = theirs.generation_config, 4
    config.eos_token_id, config.pad_token_id = end, 1
    config.forced_eos_token_id = None
    ours = convert(KINDS[kind][2], theirs)
    if kind.startswith("t5"):
        config.decoder_start_token_id = 0
        config.use_cache = False  # it has room for as many layers as the encoder's
    common = {"num_beams": beams, "max_length": 12, "do_sample": False}
    prompts = [IDS[0, :4], IDS[1, :2], IDS[2, 2:5]]
    sampler = "greedy"
    if beams > 1:
        sampler = keras_hub.samplers.BeamSampler(num_beams=beams)
    found = ours.generate(prompts, 12, sampler, stop_token_ids=[end])
    for prompt, text in zip(prompts, found, strict=True):
        with torch.no_grad():
            expected = theirs.generate(torch.tensor(prompt)[None].long(), **common)
        expected = expected[0].tolist()
        if not is_causal(kind):
            expected = expected[1:]  # what the text begins with
        assert text == expected
