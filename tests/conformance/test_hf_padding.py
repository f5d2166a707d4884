"""Rows padded at the left or within, against `transformers` with the same weights."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam import models, tasks
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.layers.attention.masks import (
    positions_without_padding,
    restarted_positions,
)
from tests.from_transformers import convert, max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "initializer_range": 0.3,
    "pad_token_id": 1,
}
DECODER = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2}
FAMILIES = {
    "Albert": {"embedding_size": 8},
    "Bert": {},
    "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    "Electra": {"embedding_size": 8},
    "GPT2": {**DECODER, "n_positions": 32},
    "Longformer": {"attention_window": 4, "sep_token_id": 2, "type_vocab_size": 1},
    "ModernBert": {"local_attention": 4},
    "ModernBertDecoder": {"local_attention": 6},
    "Roberta": {"type_vocab_size": 1},
    "XLNet": {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24},
}
SIDES = ("encoder_", "decoder_")
MASKS = np.array(
    [
        [0, 0, 0, 1, 1, 1, 1, 1, 1, 1],
        [1, 1, 0, 0, 1, 1, 0, 1, 1, 0],
        [1, 1, 1, 1, 1, 1, 1, 0, 0, 0],
    ],
    bool,
)


def rows():
    ids = np.random.default_rng(0).integers(3, 50, MASKS.shape)
    return np.where(MASKS, ids, 1).astype("int32")


def inputs():
    return {"token_ids": rows(), "padding_mask": MASKS}


def of_transformers(family):
    sizes = {**SIZES, **FAMILIES[family]}
    if family == "XLNet":
        del sizes["max_position_embeddings"]  # it has no limit
    config = getattr(transformers, f"{family}Config")(**sizes)
    return randomize(getattr(transformers, f"{family}Model")(config), 0.3)


@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_those_of_transformers(family):
    model = of_transformers(family)
    with torch.no_grad():
        expected = model(
            torch.tensor(rows()).long(), attention_mask=torch.tensor(MASKS).long()
        )[0]
    backbone = convert(getattr(models, f"{family}Backbone"), model)
    states = backbone(inputs())["sequence_output"]
    assert max_difference(states, expected, MASKS) < 2e-5


def test_states_of_t5_are_those_of_transformers():
    sizes = {"d_model": 16, "d_kv": 8, "num_heads": 2, "d_ff": 24, "num_layers": 2}
    config = transformers.T5Config(vocab_size=50, dropout_rate=0.0, **sizes)
    model = randomize(transformers.T5Model(config), 0.3)
    ids, mask = torch.tensor(rows()).long(), torch.tensor(MASKS).long()
    with torch.no_grad():
        expected = model(
            input_ids=ids,
            attention_mask=mask,
            decoder_input_ids=ids,
            decoder_attention_mask=mask,
        )
    given = {f"{s}{n}": x for s in SIDES for n, x in inputs().items()}
    outputs = convert(models.T5Backbone, model)(given)
    for side, states in zip(
        SIDES,
        (expected.encoder_last_hidden_state, expected.last_hidden_state),
        strict=True,
    ):
        found = outputs[f"{side}sequence_output"]
        assert max_difference(found, states, MASKS) < 2e-5


def bart():
    sizes = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 24))
    }
    config = transformers.BartConfig(
        vocab_size=50, d_model=16, max_position_embeddings=32, init_std=0.3, **sizes
    )
    model = transformers.BartModel(config)
    return convert(models.BartBackbone, randomize(model, 0.3))


@pytest.mark.parametrize("family", ["Roberta", "Longformer", "BART"])
def test_padding_before_and_within_a_row_moves_no_token(family):
    """BART's code in fairseq counts so as well; `transformers` counts its columns."""
    ids = rows()
    names, begins = ("sequence_output",), ("",)
    if family == "BART":
        backbone, begins = bart(), SIDES
        names = tuple(f"{side}sequence_output" for side in begins)
    else:
        backbone = convert(
            getattr(models, f"{family}Backbone"), of_transformers(family)
        )

    def call(ids, mask):
        given = {"token_ids": ids, "padding_mask": mask}
        outputs = backbone({f"{s}{n}": x for s in begins for n, x in given.items()})
        return [ops.convert_to_numpy(outputs[name]) for name in names]

    for row in range(len(ids)):
        kept = MASKS[row]
        # A window is of columns, so only tokens that stay together are the same.
        if family == "Longformer" and row == 1:
            continue
        padded = call(ids[row : row + 1], kept[None])
        alone = call(ids[row : row + 1, kept], np.ones((1, kept.sum()), bool))
        for one, other in zip(padded, alone, strict=True):
            np.testing.assert_allclose(one[:, kept], other, atol=1e-5)


def test_positions_in_packed_rows_restart_and_leave_padding_out():
    sequences = np.array([[1, 1, 1, 1, 2, 2, 2, 3, 3, 0]])
    mask = np.array([[0, 1, 0, 1, 1, 1, 0, 0, 1, 0]], bool)
    restarted = restarted_positions(ops.convert_to_tensor(sequences))
    positions = positions_without_padding(ops.convert_to_tensor(mask), restarted)
    expected = [[-1, 0, -1, 1, 0, 1, -1, -1, 0, -1]]
    np.testing.assert_array_equal(ops.convert_to_numpy(positions), expected)


def test_sequences_of_a_packed_row_are_as_alone():
    backbone = convert(models.RobertaBackbone, of_transformers("Roberta"))
    ids, mask = rows()[:1], MASKS[:1]
    alone = backbone({"token_ids": ids, "padding_mask": mask})["sequence_output"]
    packed = backbone(
        {
            "token_ids": np.concatenate([ids, ids], 1),
            "padding_mask": np.concatenate([mask, mask], 1),
            "sequence_ids": np.repeat([[1, 2]], 10, 1).astype("int32"),
        }
    )["sequence_output"]
    for half in np.split(ops.convert_to_numpy(packed), 2, 1):
        np.testing.assert_allclose(half[mask], ops.convert_to_numpy(alone)[mask], 1e-4)


@pytest.mark.parametrize("family", ["Roberta", "XLMRoberta", "Camembert", "Longformer"])
def test_a_tokenizer_whose_padding_shifts_positions(family, tmp_path):
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8}
    sizes |= {"attention_window": 2} if family == "Longformer" else {}
    backbone = getattr(models, f"{family}Backbone")(9, **sizes, max_sequence_length=16)
    words = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", *"abcd"]
    for tokens, fits in ((words, True), (words[1::-1] + words[2:], False)):
        preprocessor = tasks.MaskedLMPreprocessor(BertTokenizer(tokens), 8)
        model = tasks.MaskedLM(backbone, preprocessor)
        if fits:
            model.export_to_transformers(tmp_path / "out")
            continue
        with pytest.raises(ValueError, match="must have 1 as the id of padding.*=0"):
            model.export_to_transformers(tmp_path / "none")
