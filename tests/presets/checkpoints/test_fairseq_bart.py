"""fairseq's BART: `model.pt` and `dict.txt`."""

import argparse
import json
import warnings

import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import BartBackbone, RobertaBackbone
from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints.fairseq import open_source
from keras_bertfam.tasks import TextToText
from tests.from_transformers import randomize
from tests.huge_numbers import seconds

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

ARGUMENTS = dict(
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    activation_fn="gelu",
    dropout=0.2,
    no_scale_embedding=True,
    encoder_normalize_before=False,
    layernorm_embedding=True,
    share_all_embeddings=True,
)


@pytest.fixture(scope="module")
def bart():
    config = transformers.BartConfig(
        vocab_size=14,
        d_model=16,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=12,
    )
    return randomize(transformers.BartForConditionalGeneration(config), 0.1)


def state_of(model):
    """The tensors by fairseq's names."""
    state = {
        name.removeprefix("model."): tensor.clone()
        for name, tensor in model.state_dict().items()
        if name not in ("final_logits_bias", "lm_head.weight")
    }
    table = state.pop("shared.weight")
    for name in ("encoder.embed_tokens", "decoder.embed_tokens"):
        state[f"{name}.weight"] = table
    for side in ("encoder", "decoder"):
        state[f"{side}.version"] = torch.tensor([3.0])
        state[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
    return {**state, "decoder.output_projection.weight": table}


def save(folder, state, mask=True, **arguments):
    given = argparse.Namespace(**{**ARGUMENTS, **arguments})
    torch.save({"args": given, "model": state}, folder / "model.pt")
    lines = [f"{token} 1" for token in (5, 3, 8, 0, 1, 2, 4, 6, "madeupword0000")]
    lines += [] if mask else ["7 1"]
    (folder / "dict.txt").write_text("\n".join(lines) + "\n")
    return str(folder)


def test_logits(bart, tmp_path):
    path = save(tmp_path, state_of(bart))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        task = TextToText.from_preset(path)
    backbone = task.backbone
    assert (backbone.dropout, backbone.max_sequence_length) == (0.2, 12)
    assert (backbone.num_layers, backbone.num_decoder_layers) == (2, 1)
    ids, mask = np.array([[0, 7, 9, 2, 1]]), np.array([[1, 1, 1, 1, 0]])
    with torch.no_grad():
        expected = bart(
            input_ids=torch.tensor(ids),
            attention_mask=torch.tensor(mask),
            decoder_input_ids=torch.tensor(ids),
        ).logits.numpy()
    data = {"encoder_token_ids": ids, "encoder_padding_mask": mask}
    data |= {"decoder_token_ids": ids, "decoder_padding_mask": np.ones_like(mask)}
    got = ops.convert_to_numpy(task(data))
    np.testing.assert_allclose(got, expected, atol=1e-4)


@pytest.mark.slow
@pytest.mark.any_backend
def test_tokens_and_heads(bart, tmp_path):
    ids = {token: index for index, token in enumerate([*"abcdefgh", "ab"])}
    (tmp_path / "encoder.json").write_text(json.dumps(ids))
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\na b\n")
    head = {
        f"classification_heads.mnli.{layer}.{part}": torch.zeros(3, 3)
        for layer in ("dense", "out_proj")
        for part in ("weight", "bias")
    }
    for mask in (True, False):
        source = open_source(save(tmp_path, {**state_of(bart), **head}, mask))
        with open(source.tokenizer_files["vocab.json"]) as file:
            vocabulary = json.load(file)
        assert vocabulary["ab" if mask else "h"] in (6, 13) and len(vocabulary) == 14
        assert ("<mask>" in vocabulary) == mask
        assert "classification_head.out_proj.bias" in source.tensors
    path = save(tmp_path, state_of(bart))
    tokenizer = TextToText.from_preset(path).preprocessor.tokenizer
    assert (tokenizer.mask_token_id, list(tokenizer("abdb"))) == (13, [6, 5, 8])


@pytest.mark.any_backend
def test_what_is_no_bart_of_ours(bart, tmp_path):
    state = state_of(bart)
    for arguments, message in (
        ({"encoder_normalize_before": True}, "'normalize_before' to be False"),
        ({"no_scale_embedding": False}, "'scale_embedding' to be False"),
        ({"layernorm_embedding": False}, "'normalize_embedding' to be True"),
        ({"encoder_learned_pos": False}, "'static_position_embeddings'"),
        ({"decoder_attention_heads": 4}, "'decoder_attention_heads'"),
        ({"activation_fn": 3}, "'activation_function'"),
    ):
        with pytest.raises(CheckpointError, match=message):
            BartBackbone.from_preset(save(tmp_path, state, **arguments))
    norm = {"encoder.layer_norm.weight": torch.ones(16)}
    with pytest.raises(CheckpointError, match="'add_final_layer_norm' to be False"):
        BartBackbone.from_preset(save(tmp_path, {**state, **norm}))
    with pytest.raises(CheckpointError, match="which holds a BartBackbone"):
        RobertaBackbone.from_preset(save(tmp_path, state))
    other = {**state, "decoder.output_projection.weight": torch.ones(14, 16)}
    own = TextToText.from_preset(save(tmp_path, other)).backbone.token_embedding
    assert not own.tie_weights and np.all(own.reverse_embeddings == 1)
    other = {**state, "decoder.embed_tokens.weight": torch.ones(14, 16)}
    with pytest.raises(CheckpointError, match="decoder.embed_tokens.* one table"):
        TextToText.from_preset(save(tmp_path, other))
    for name in ("encoder.embed_tokens.weight", "decoder.layers.0.fc1.weight"):
        less = {key: tensor for key, tensor in state.items() if key != name}
        with pytest.raises(CheckpointError):
            BartBackbone.from_preset(save(tmp_path, less))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*")
def test_arguments_and_tensors_by_strangers(bart, tmp_path):
    state, refused, tried = state_of(bart), 0, 0
    values = (None, -1, 10**6, float("nan"), "x", {})
    cases = [(state, {name: value}) for name in ARGUMENTS for value in values]
    for name in ("encoder.layers.0.fc1.weight", "decoder.embed_positions.weight"):
        for change in (
            lambda x: x[:1],
            lambda x: x.flatten(),
            lambda x: x.to(torch.int32),
            lambda x: x.expand(100_000, *x.shape),  # declares what isn't stored
            lambda x: x.to_sparse(),
            lambda x: torch.empty(0),
        ):
            cases.append(({**state, name: change(state[name])}, {}))
    for tensors, arguments in cases:
        path = save(tmp_path, tensors, **arguments)
        tried += 1
        try:
            with seconds(10):
                BartBackbone.from_preset(path)
        except CheckpointError:
            refused += 1
    assert 30 < refused < tried
