"""Longformer and ModernBERT against `transformers`, on rows that are hard for them."""

import json
import pathlib

import numpy as np
import pytest
from keras import ops

from keras_bertfam import models, tasks, tokenizers
from keras_bertfam.presets import CheckpointError
from tests.from_transformers import convert, max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
OTHERS = {
    "Longformer": {
        "attention_window": [4, 8, 4],
        "sep_token_id": 2,
        "type_vocab_size": 1,
    },
    "ModernBert": {"local_attention": 4, "pad_token_id": 0},
}


def theirs(architecture, **kwargs):
    family = "Longformer" if architecture.startswith("Long") else "ModernBert"
    config = getattr(transformers, f"{family}Config")(
        **{**SIZES, **OTHERS[family], **kwargs}
    )
    return randomize(getattr(transformers, architecture)(config), 0.1)


def rows(length, padding=3):
    ids = np.random.default_rng(length).integers(3, 50, (2, length)).astype("int32")
    mask = np.arange(length) < [[length], [length - padding]]
    return np.where(mask, ids, 1).astype("int32"), mask


def outputs_of(model, ids, mask, **kwargs):
    given = {name: torch.tensor(x).long() for name, x in kwargs.items()}
    with torch.no_grad():
        return model(
            torch.tensor(ids).long(), attention_mask=torch.tensor(mask).long(), **given
        )


@pytest.fixture(scope="module")
def longformer():
    model = theirs("LongformerModel")
    return model, convert(models.LongformerBackbone, model)


@pytest.mark.slow
@pytest.mark.parametrize("length", [5, 23, 31, 40])
@pytest.mark.parametrize("places", [(), (0,), (3, 22, 4, 37)])
def test_longformer_states(longformer, length, places):
    """Padding, odd lengths, blocks and all scores, global tokens anywhere."""
    model, ours = longformer
    ids, mask = rows(length)
    inputs = {"token_ids": ids, "padding_mask": mask}
    marks = np.zeros(ids.shape, bool)
    marks[0, [place for place in places if place < length]] = True
    marks[1, [place // 2 for place in places if place // 2 < length - 3]] = True
    kwargs = {"global_attention_mask": marks} if places else {}
    expected = outputs_of(model, ids, mask, **kwargs)
    found = ours({**inputs, **kwargs})
    error = max_difference(found["sequence_output"], expected[0], mask)
    assert error < 1e-5
    assert max_difference(found["pooled_output"], expected[1]) < 1e-5


@pytest.mark.slow
def test_longformer_heads():
    """Global tokens that nobody gives are those of `transformers`."""
    ids, mask = rows(24)
    model = theirs("LongformerForSequenceClassification", num_labels=3)
    ours = convert(tasks.TextClassifier, model)
    expected = outputs_of(model, ids, mask).logits
    found = ours({"token_ids": ids, "padding_mask": mask})
    assert max_difference(found, expected) < 1e-4

    ids[:, [6, 7, 20]] = 2  # <s> question </s></s> context </s>
    segments = (np.arange(24) >= 8)[None].repeat(2, axis=0).astype("int32")
    ids, mask, segments = ids[:, :21], mask[:, :21], segments[:, :21]
    mask = np.ones_like(mask)
    model = theirs("LongformerForQuestionAnswering")
    ours = convert(tasks.SpanQuestionAnswering, model)
    expected = outputs_of(model, ids, mask)
    inputs = {"token_ids": ids, "padding_mask": mask, "segment_ids": segments}
    found = ours(inputs)
    for name in ("start_logits", "end_logits"):
        assert max_difference(found[name], expected[name]) < 1e-4
    span = segments.astype(bool) & (np.arange(21) < 20)
    again = ours({**inputs, "span_mask": span})["end_logits"]
    assert max_difference(again, expected["end_logits"]) < 1e-4

    model = theirs("LongformerForMultipleChoice")
    ours = convert(tasks.MultipleChoice, model)
    choice = {name: x[None] for name, x in inputs.items()}
    expected = outputs_of(model, ids[None], mask[None]).logits
    assert max_difference(ours(choice), expected) < 1e-4


def test_longformer_of_roberta_goes_back(tmp_path):
    """A Longformer made here of theirs is theirs."""
    config = transformers.RobertaConfig(**{**SIZES, "max_position_embeddings": 18})
    model = randomize(transformers.RobertaForMaskedLM(config), 0.1)
    roberta = convert(tasks.MaskedLM, model)
    longer = models.make_longformer(roberta, 48, attention_window=8)
    longer.export_to_transformers(tmp_path)
    again = transformers.LongformerForMaskedLM.from_pretrained(tmp_path)
    ids, mask = rows(41)
    expected = outputs_of(again.eval(), ids, mask).logits
    found = longer({"token_ids": ids, "padding_mask": mask})
    assert max_difference(found, expected, mask) < 1e-4
    text = pathlib.Path(tmp_path, "config.json").read_text()
    assert json.loads(text)["max_position_embeddings"] == 50


@pytest.fixture(scope="module")
def modernbert():
    model = theirs("ModernBertForMaskedLM")
    return model, convert(tasks.MaskedLM, model)


@pytest.mark.parametrize("length", [5, 23])
def test_modernbert_states_and_logits(modernbert, length):
    model, ours = modernbert
    ids, mask = rows(length)
    inputs = {"token_ids": ids, "padding_mask": mask}
    expected = outputs_of(model.model, ids, mask)[0]
    found = ours.backbone(inputs)["sequence_output"]
    assert max_difference(found, expected, mask) < 1e-5
    logits = outputs_of(model, ids, mask).logits
    assert max_difference(ours(inputs), logits, mask) < 1e-4
    places = np.array([[1, 4], [0, 1]], "int32")
    picked = np.take_along_axis(logits.numpy(), places[..., None], axis=1)
    some = ops.convert_to_numpy(ours({**inputs, "mask_positions": places}))
    np.testing.assert_allclose(some, picked, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_modernbert_pooling(pooling, tmp_path):
    name = "ModernBertForSequenceClassification"
    model = theirs(name, num_labels=3, classifier_pooling=pooling)
    ours = convert(tasks.TextClassifier, model)
    assert ours.head_style == {"cls": "modernbert"}.get(pooling, "modernbert_mean")
    ids, mask = rows(19)
    expected = outputs_of(model, ids, mask).logits
    inputs = {"token_ids": ids, "padding_mask": mask}
    assert max_difference(ours(inputs), expected) < 1e-4
    ours.export_to_transformers(tmp_path)
    again = getattr(transformers, name).from_pretrained(tmp_path).eval()
    assert again.config.classifier_pooling == pooling
    assert max_difference(ours(inputs), outputs_of(again, ids, mask).logits) < 1e-4


def test_modernbert_configs_of_both_forms(tmp_path):
    model = theirs("ModernBertModel")
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for key in ("layer_types", "rope_parameters"):
        del config[key]
    config |= {"global_attn_every_n_layers": 2, "local_rope_theta": None}
    config["global_rope_theta"] = 500.0
    path.write_text(json.dumps(config))
    ours = models.Backbone.from_preset(str(tmp_path))
    assert ours.attention_window == (0, 4, 0)
    assert ours.rotary_base == (500.0, 10_000.0)
    for change, message in (
        ({"layer_types": ["full_attention"]}, "'layer_types' to be 3 of"),
        ({"local_attention": "wide"}, "'local_attention' to be an int of at least 2"),
        ({"global_rope_theta": -1}, "a positive 'global_rope_theta'"),
        ({"rope_scaling": {"factor": 2}}, "of the type 'default'"),
        ({"norm_bias": True}, "'norm_bias'"),
    ):
        path.write_text(json.dumps({**config, **change}))
        with pytest.raises(CheckpointError, match=message):
            models.Backbone.from_preset(str(tmp_path))


@pytest.mark.slow
@pytest.mark.any_backend
def test_modernbert_tokenizer(tmp_path):
    import tensorflow as tf

    texts = [
        "a bat & a cat sat, 12 x",
        "two  spaces,   three\tand a tab \n a line",
        "Ångström A\u030angstro\u0308m — 中文 👩",
        "   before",
        "and after  ",
        "",
    ]
    documents = tf.data.Dataset.from_tensor_slices(texts[:3]).repeat(2)
    learned = tokenizers.train_byte_pair(documents, 320, family="modernbert")
    vocabulary = {**learned.vocabulary}
    for spaces in (2, 3):
        vocabulary[" " * spaces] = len(vocabulary)
    tokenizer = tokenizers.ModernBertTokenizer(vocabulary, learned.merges)
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8}
    backbone = models.ModernBertBackbone(len(vocabulary), **sizes)
    task = tasks.MaskedLM(
        backbone, tasks.MaskedLMPreprocessor(tokenizer, sequence_length=16)
    )
    task.export_to_transformers(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in texts:
        expected = theirs(text, add_special_tokens=False).input_ids
        (found,) = tokenizer([text])
        assert list(np.array(found)) == expected, text
    assert theirs("a [MASK] b").input_ids.count(theirs.mask_token_id) == 1
    again = tasks.MaskedLM.from_preset(str(tmp_path))
    assert again.preprocessor.tokenizer.vocabulary == vocabulary
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert config.pad_token_id == vocabulary["[PAD]"]
    filled = again.fill_mask("a [MASK] sat", top_k=2)
    assert len(filled[0]) == 2
