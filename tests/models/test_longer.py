"""ModernBERT, Longformer, and what any encoder takes of them."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import models, tasks
from keras_bertfam.models import LongformerBackbone, ModernBertBackbone

SIZES = {"num_layers": 3, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
LONGFORMER = {**SIZES, "attention_window": 4, "max_global_tokens": 5}
COUNTS = {
    "modernbert_base_en": 149_014_272,
    "modernbert_large_en": 394_781_696,
    "longformer_base_en": 148_068_096,
    "longformer_large_en": 433_550_336,
}
# Of the encoder; its decoder has as many.
ETTIN = {
    "17m": 16_797_440,
    "32m": 31_883_136,
    "68m": 68_144_640,
    "150m": 149_014_272,
    "400m": 394_781_696,
    "1b": 1_028_050_688,
}


def as_numpy(x):
    return ops.convert_to_numpy(x)


def states(backbone, **inputs):
    return as_numpy(backbone(inputs)["sequence_output"])


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.any_backend
def test_parameter_counts(name):
    cls = LongformerBackbone if "longformer" in name else ModernBertBackbone
    assert cls.parameter_count(**cls.presets_table[name]) == COUNTS[name]


@pytest.mark.parametrize("size", ETTIN)
@pytest.mark.any_backend
def test_parameter_counts_of_ettin(size):
    for cls, kind in (
        (models.EttinBackbone, "encoder"),
        (models.ModernBertDecoderBackbone, "decoder"),
    ):
        arguments = cls.presets_table[f"ettin_{kind}_{size}_en"]
        assert cls.parameter_count(**arguments) == ETTIN[size]


# Without and with the head of its masked language model.
MMBERT = {"small": (140_493_696, 140_897_536), "base": (306_939_648, 307_786_240)}


@pytest.mark.any_backend
@pytest.mark.parametrize("size", MMBERT)
def test_parameter_counts_of_mmbert(size):
    arguments = models.MmBertBackbone.presets_table[f"mmbert_{size}_multi"]
    encoder, whole = MMBERT[size]
    assert models.MmBertBackbone.parameter_count(**arguments) == encoder
    width = arguments["hidden_dim"]
    assert encoder + width**2 + width + 256_000 == whole
    without = {"small": 42_189_696, "base": 110_331_648}
    assert encoder - 256_000 * width == without[size]


@pytest.mark.any_backend
def test_formula_of_modernbert():
    """V H + H + L (4 H^2 + 3 H I + 2 H) - H + H, and heads H^2 + H + V."""
    for name in ("modernbert_base_en", "modernbert_large_en"):
        size = ModernBertBackbone.presets_table[name]
        layers, width, inner = (
            size[k] for k in ("num_layers", "hidden_dim", "intermediate_dim")
        )
        block = 4 * width**2 + 3 * width * inner + 2 * width
        assert 50368 * width + width + layers * block == COUNTS[name]


ROWS = np.random.default_rng(0).integers(1, 40, (2, 21)).astype("int32")
FAMILIES = {
    "ModernBert": (ModernBertBackbone, {**SIZES, "attention_window": (0, 4, 4)}),
    "Longformer": (LongformerBackbone, LONGFORMER),
    "Bert": (models.BertBackbone, {**SIZES, "rotary_base": 100.0}),
    "Albert": (
        models.AlbertBackbone,
        {**SIZES, "attention_window": (0, 4), "rotary_base": (1000.0, 10.0)},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_packed_rows_are_rows_of_their_own(name):
    """Sequences that share a row, with padding, have the states they have alone."""
    cls, arguments = FAMILIES[name]
    keras.utils.set_random_seed(0)
    backbone = cls(40, **arguments)
    first, second = states(backbone, token_ids=ROWS[:, :9]), ROWS[:, 9:]
    ids = np.repeat([[1] * 9 + [2] * 12], 2, axis=0).astype("int32")
    packed = states(backbone, token_ids=ROWS, sequence_ids=ids)
    np.testing.assert_allclose(packed[:, :9], first, atol=3e-6)
    alone = states(backbone, token_ids=second)
    np.testing.assert_allclose(packed[:, 9:], alone, atol=3e-6)
    longer = np.pad(second, [[0, 0], [0, 7]])
    padded = states(backbone, token_ids=longer, padding_mask=longer > 0)
    np.testing.assert_allclose(padded[:, :12], alone, atol=3e-6)
    # The last block at some positions only.
    places = np.array([[3, 20], [8, 9]], "int32")
    some = backbone({"token_ids": ROWS, "sequence_ids": ids}, positions=places)
    picked = np.take_along_axis(packed, places[..., None], axis=1)
    np.testing.assert_allclose(as_numpy(some["sequence_output"]), picked, atol=3e-6)
    again = cls.from_config(backbone.get_config())
    assert again.get_config() == backbone.get_config()


def test_shared_attention_has_windows_of_its_layers():
    cls, arguments = FAMILIES["Albert"]
    backbone = cls(40, **arguments)
    assert backbone.attention_window == (0, 4, 0)
    assert len(backbone.encoder.attention_layers) == 1
    scores = backbone({"token_ids": ROWS}, return_attention=True)["attentions"]
    seen = [int((as_numpy(layer)[0, 0, 10] > 0).sum()) for layer in scores]
    assert seen == [21, 5, 21]


@pytest.mark.slow
def test_a_preset_of_each(tmp_path):
    for name in ("ModernBert", "Longformer"):
        cls, arguments = FAMILIES[name]
        backbone = cls(40, **arguments)
        folder = str(tmp_path / name)
        backbone.save_to_preset(folder)
        again = models.Backbone.from_preset(folder)
        assert type(again) is cls and again.get_config() == backbone.get_config()
        np.testing.assert_array_equal(
            states(again, token_ids=ROWS), states(backbone, token_ids=ROWS)
        )


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"global_positions": [[0, 9]]}, "must be from 0 to 8 for rows of 9"),
        ({"global_positions": [[-2]]}, "or -1 for none. Received: -2 to -2"),
        ({"global_positions": [[0] * 6]}, "at most max_global_tokens=5 positions"),
        ({"global_attention_mask": [[1] * 9]}, "at most max_global_tokens=5 of them"),
        ({"global_attention_mask": [[1] * 3]}, "must have 9 elements for a row"),
        (
            {"global_attention_mask": [[1] * 9], "global_positions": [[0]]},
            "not both",
        ),
    ],
)
@pytest.mark.any_backend
def test_global_tokens_outside_and_too_many(inputs, message):
    backbone = LongformerBackbone(40, **LONGFORMER)
    inputs = {name: np.array(value, "int32") for name, value in inputs.items()}
    with pytest.raises(ValueError, match=message):
        backbone({"token_ids": ROWS[:1, :9], **inputs})


@pytest.mark.parametrize(
    "given",
    [
        {"global_positions": [[0, 18], [0, -1]]},
        {"global_positions": [[0, 0], [3, 3]]},
        {"global_attention_mask": [[1] + [0] * 17 + [1, 0, 0], [1] + [0] * 20]},
    ],
)
def test_global_tokens_of_padding_and_given_twice(given):
    """In blocks, which long rows are computed by, and in whole rows."""
    keras.utils.set_random_seed(0)
    backbone = LongformerBackbone(40, **LONGFORMER)
    there = np.arange(21) < [[15], [21]]
    inputs = {name: np.array(value, "int32") for name, value in given.items()}
    inputs |= {"token_ids": ROWS, "padding_mask": there}
    found = as_numpy(backbone(inputs)["sequence_output"])
    whole = backbone(inputs, return_attention=True)["sequence_output"]
    np.testing.assert_allclose(found[there], as_numpy(whole)[there], atol=1e-5)
    inputs["token_ids"] = np.where(there, ROWS, 7)
    found_again = as_numpy(backbone(inputs)["sequence_output"])
    np.testing.assert_allclose(found[there], found_again[there], atol=1e-6)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "name, ids, limit",
    [
        ("segment_ids", [0, 2], r"\[0, num_segments=2\)"),
        ("segment_ids", [-1, 1], r"\[0, num_segments=2\)"),
        ("language_ids", [-1, 3], r"\[-1, num_languages=3\)"),
    ],
)
def test_ids_that_are_rows_of_no_table(name, ids, limit):
    backbone = models.EncoderBackbone(40, **SIZES, num_segments=2, num_languages=3)
    inputs = {"token_ids": ROWS[:1, :2], name: np.array([ids], "int32")}
    with pytest.raises(ValueError, match=f"`{name}` must be in {limit}.*{ids[0]} to"):
        backbone(inputs)


def test_too_many_global_tokens_in_a_graph_are_no_numbers():
    backbone = LongformerBackbone(40, **LONGFORMER)
    mask = np.zeros((2, 21), bool)
    mask[0, :5] = mask[1, :6] = True
    out = states(
        backbone, token_ids=ROWS, global_attention_mask=ops.convert_to_tensor(mask)
    )
    assert np.isfinite(out[0]).all() and np.isnan(out[1]).all()


@pytest.mark.parametrize(
    ("cls", "arguments", "message"),
    [
        (models.BertBackbone, {"attention_window": 5}, "`attention_window` must be ev"),
        (models.BertBackbone, {"attention_window": []}, "or a list of values by layer"),
        (models.BertBackbone, {"attention_dilation": 2}, "1 without `attention_window"),
        (models.BertBackbone, {"rotary_base": 0}, "positive number, or two"),
        (models.BertBackbone, {"rotary_base": 9.0, "head_dim": 3}, "must be even with"),
        (models.BertBackbone, {"first_norm": False}, "unless norm_first=True"),
        (models.BertBackbone, {"max_global_tokens": -1}, "from 0 to 65536"),
        (models.GPT2Backbone, {"max_global_tokens": 4}, "`causal` must be False"),
        (ModernBertBackbone, {"share": "all"}, "share attention"),
    ],
)
@pytest.mark.any_backend
def test_arguments_that_do_not_go_together(cls, arguments, message):
    with pytest.raises(ValueError, match=message):
        cls(40, **{**SIZES, **arguments})


def test_rows_longer_than_positions_and_no_global_tokens():
    backbone = ModernBertBackbone(40, **SIZES, max_sequence_length=8)
    with pytest.raises(ValueError, match="at most max_sequence_length=8"):
        backbone({"token_ids": ROWS})
    with pytest.raises(ValueError, match="max_global_tokens=0"):
        backbone(
            {"token_ids": ROWS[:, :8], "global_positions": np.zeros((2, 1), "int32")}
        )


@pytest.mark.any_backend
def test_positions_of_a_backbone_without_layers():
    backbone = models.BertBackbone(40, **{**SIZES, "num_layers": 0})
    x = {"token_ids": ROWS}
    whole = as_numpy(backbone(x)["sequence_output"])
    outputs = backbone(x, positions=np.array([[3, 1], [0, 5]], "int32"))
    expected = np.stack([whole[0, [3, 1]], whole[1, [0, 5]]])
    np.testing.assert_allclose(as_numpy(outputs["sequence_output"]), expected)


def test_a_longformer_has_the_convolution():
    keras.utils.set_random_seed(0)
    old = models.EncoderBackbone(40, **SIZES, convolution=3, max_sequence_length=16)
    new = models.make_longformer(old, 40, attention_window=32)
    ids = ROWS[:, :8]
    found = states(new, token_ids=ids)
    np.testing.assert_allclose(found, states(old, token_ids=ids), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [models.RobertaBackbone, models.BertBackbone])
def test_a_longformer_of_another_encoder(cls):
    """Rows 2 + 16 k + i are the old row 2 + i; short rows are as they were."""
    keras.utils.set_random_seed(0)
    old = cls(40, **SIZES, max_sequence_length=16)
    task = tasks.MaskedLM(old)
    new = models.make_longformer(task, 40, attention_window=32)
    assert type(new) is tasks.MaskedLM and type(new.backbone) is LongformerBackbone
    offset = {models.RobertaBackbone: 2, models.BertBackbone: 1}[cls]
    table = as_numpy(old.embeddings.position_table)[old.position_offset :]
    found = as_numpy(new.backbone.embeddings.position_table)
    assert found.shape == (offset + 40, 16)
    for row in range(40):
        np.testing.assert_array_equal(found[offset + row], table[row % 16])
    x = {"token_ids": ROWS[:, :16]}
    np.testing.assert_allclose(as_numpy(new(x)), as_numpy(task(x)), atol=3e-6)
    layer = new.backbone.encoder.attention_layers[1].sublayer
    kernels = (layer.qkv.kernel, layer.global_qkv.kernel)
    np.testing.assert_array_equal(*map(as_numpy, kernels))
    many = cls(40, **SIZES, max_sequence_length=16, num_languages=3)
    tables = [
        as_numpy(each.embeddings.language_table)
        for each in (many, models.make_longformer(many, 40, attention_window=32))
    ]
    np.testing.assert_array_equal(*tables)
    with pytest.raises(ValueError, match="must have full attention"):
        models.make_longformer(new, 80)
    with pytest.raises(ValueError, match="more than the 16 of `model`"):
        models.make_longformer(old, 16)
    with pytest.raises(ValueError, match="with a table of positions"):
        models.make_longformer(models.BertBackbone(9, **SIZES, rotary_base=9.0))


def test_what_tasks_train():
    """Masked language modelling has no global tokens, and tasks of texts have."""
    backbone = LongformerBackbone(40, **LONGFORMER)
    theirs = {id(v) for layer in backbone.global_projections() for v in layer.variables}
    assert len(theirs) == 6
    for task, trained in (
        (tasks.MaskedLM(backbone), False),
        (tasks.TextClassifier(backbone, 2), True),
        (tasks.TokenClassifier(backbone, 2), False),
    ):
        names = {id(v) for v in task.trainable_variables}
        assert (theirs <= names) == trained and bool(theirs & names) == trained


@pytest.mark.slow
def test_global_tokens_by_task():
    keras.utils.set_random_seed(0)
    backbone = LongformerBackbone(40, **LONGFORMER, max_sequence_length=32)
    first = np.zeros((2, 21), bool)
    first[:, 0] = True

    def given(task, **inputs):
        mask = inputs.pop("mask")
        ours = task(inputs)
        return ours, task({**inputs, "global_attention_mask": mask})

    same = given(tasks.TextClassifier(backbone, 2), token_ids=ROWS, mask=first)
    np.testing.assert_allclose(*map(as_numpy, same), atol=1e-6)
    # Two separators go before the context.
    span = np.arange(21) >= [[6], [7]]
    question = np.arange(21) < [[4], [5]]
    qa = tasks.SpanQuestionAnswering(backbone)
    same = given(qa, token_ids=ROWS, span_mask=span, mask=question)
    np.testing.assert_allclose(
        *(as_numpy(part["start_logits"]) for part in same), atol=1e-6
    )
    with pytest.raises(ValueError, match="mark the question"):
        qa({"token_ids": ROWS})
    segments = (np.arange(21) >= 17).astype("int32")[None, None].repeat(2, axis=1)
    choices = tasks.MultipleChoice(backbone)
    same = given(
        choices,
        token_ids=ROWS[None],
        segment_ids=segments,
        mask=segments.astype(bool),
    )
    np.testing.assert_allclose(*map(as_numpy, same), atol=1e-6)
    with pytest.raises(ValueError, match="mark the choices"):
        choices({"token_ids": ROWS[None]})


@pytest.mark.parametrize("length", [6, 40])  # all scores of rows, and blocks
@pytest.mark.parametrize("dilation", [None, [[1, 2]]])
def test_windows_of_causal_models(length, dilation):
    sizes = {**SIZES, "num_layers": 1, "attention_window": 4}
    backbone = models.GPT2Backbone(
        40, **sizes, attention_dilation=dilation, max_sequence_length=64
    )
    ids = np.random.default_rng(0).integers(1, 40, (2, length)).astype("int32")
    before = states(backbone, token_ids=ids)
    # Computed as whole rows.
    whole = backbone({"token_ids": ids}, return_attention=True)
    np.testing.assert_allclose(
        before, ops.convert_to_numpy(whole["sequence_output"]), atol=1e-5
    )
    scores = ops.convert_to_numpy(whole["attentions"][0])
    apart = np.arange(length)[:, None] - np.arange(length)
    for head, step in enumerate((1, 2 if dilation else 1)):
        near = (apart >= 0) & (apart <= 2 * step) & (apart % step == 0)
        assert ((scores[:, head] > 0) == near).all()
    changed = ids.copy()
    changed[:, 3] = (ids[:, 3] + 1) % 39 + 1
    differs = np.abs(states(backbone, token_ids=changed) - before).max((0, 2)) > 1e-6
    reach = 4 if dilation else 2
    assert (
        not differs[:3].any() and not differs[4 + reach :].any() and differs[3:6].any()
    )


@pytest.mark.slow
def test_a_causal_model_with_windows_writes_as_it_reads():
    backbone = models.GPT2Backbone(
        40,
        **{**SIZES, "num_layers": 2},
        attention_window=[4, 0],
        max_sequence_length=32,
    )
    ids = np.random.default_rng(1).integers(1, 40, (2, 20)).astype("int32")
    expected = states(backbone, token_ids=ids)
    cache = backbone.empty_cache(2, 20)
    found = []
    for first, end in ((0, 7), (7, 8), (8, 20)):
        part = {"token_ids": ids[:, first:end]}
        out = backbone(part, cache=cache, cache_index=first)
        cache = out["cache"]
        found.append(as_numpy(out["sequence_output"]))
    np.testing.assert_allclose(np.concatenate(found, 1), expected, atol=1e-5)
    heads = np.zeros((2, 2), "float32")
    empty, row = backbone.empty_cache(2, 20), {"token_ids": ids}
    closed = backbone(row, cache=empty, head_mask=heads)["sequence_output"]
    whole = backbone(row, head_mask=heads)["sequence_output"]
    np.testing.assert_allclose(as_numpy(closed), as_numpy(whole), atol=1e-5)
    for name, value in {"positions": [[0], [1]], "return_attention": True}.items():
        with pytest.raises(ValueError, match=f"`{name}` must be left out with a"):
            backbone(row, cache=empty, **{name: value})
    with pytest.raises(ValueError, match="`sequence_ids` must be left out with a"):
        backbone({**row, "sequence_ids": ids}, cache=empty)
    for index, keys in ((1, 20), (13, 40), (-1, 20)):
        with pytest.raises(ValueError, match=f"leave room .*of {keys} keys.*: {index}"):
            backbone(row, cache=backbone.empty_cache(2, keys), cache_index=index)
    dilated = models.GPT2Backbone(
        40, **SIZES, attention_window=4, attention_dilation=2, max_sequence_length=32
    )
    with pytest.raises(ValueError, match="`attention_dilation` must be 1 for texts"):
        dilated({"token_ids": ids}, cache=dilated.empty_cache(2, 20), cache_index=0)
