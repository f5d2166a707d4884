"""MPNet: its counts, its files both ways, its tokenizer, and its embedders."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, tasks
from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.tokenizer_formats.tokenizer_files import export_tokenizer
from keras_bertfam.presets.tokenizer_presets import load_given_tokenizer
from keras_bertfam.tokenizers import (
    BertTokenizer,
    MPNetTokenizer,
    extend_vocabulary,
    train_word_piece,
)
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from tests.compiled import compiled
from tests.from_transformers import max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat"]
BERT += ["##s", "a", "b", "c", ".", ",", "<", ">", "mask", "s", "/", "cafe"]
WORDS = ["<s>", "<pad>", "</s>", "<unk>", *BERT, "<mask>"]
TEXTS = ["The cats sat.", "a zebra on the MAT, café", "", "cat < mask > / b"]
# Longer than the greatest distance that has a bucket.
LENGTH = 150


def config(**changes):
    sizes = dict(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=LENGTH + 2,
        layer_norm_eps=1e-5,
    )
    return transformers.MPNetConfig(**{**sizes, **changes})


def model_of(ending="ForMaskedLM", **changes):
    return randomize(getattr(transformers, f"MPNet{ending}")(config(**changes)), 0.2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A masked language model of `transformers`, and a tokenizer beside it."""
    path = tmp_path_factory.mktemp("mpnet")
    theirs = model_of()
    theirs.save_pretrained(path)
    export_tokenizer(MPNetTokenizer(WORDS, lowercase=True), path)
    return path, theirs


@pytest.mark.any_backend
def test_parameter_counts():
    cls, name = models.MPNetBackbone, "mpnet_base_en_uncased"
    arguments = cls.presets_table[name]
    width, inner = 768, 3072
    layer = 4 * (width**2 + width) + 2 * width * inner + inner + width + 4 * width
    # Tokens, positions and their norm; layers; the bias.
    expected = (30527 + 514 + 2) * width + 12 * layer + 32 * 12
    assert cls.parameter_count(**arguments) == expected == 108_895_872
    pooled = cls.parameter_count(**arguments, pooler=True)
    assert pooled == 109_486_464
    assert expected + width**2 + width + 2 * width + 30527 == 109_518_527


@pytest.mark.slow
def test_states_and_logits_are_those_of_transformers(folder):
    path, theirs = folder
    task = tasks.MaskedLM.from_preset(str(path))
    assert type(task.backbone) is models.MPNetBackbone
    assert type(task.preprocessor.tokenizer) is MPNetTokenizer
    assert task.preprocessor.tokenizer.lowercase
    draw = np.random.default_rng(0)
    mask = np.arange(LENGTH) < np.array([[LENGTH], [7], [1]])
    ids = draw.integers(4, len(WORDS), mask.shape).astype("int32")
    ids = np.where(mask, ids, 1)
    given = {
        "input_ids": torch.tensor(ids).long(),
        "attention_mask": torch.tensor(mask),
    }
    with torch.no_grad():
        expected = theirs(**given, output_hidden_states=True)
    rows = {"token_ids": ids, "padding_mask": mask}
    states = compiled(task.backbone)(rows, return_hidden_states=True)["hidden_states"]
    for ours, other in zip(states, expected.hidden_states, strict=True):
        assert max_difference(ours, other, mask) < 1e-5
    every = np.tile(np.arange(LENGTH, dtype="int32"), (3, 1))
    logits = compiled(task)({**rows, "mask_positions": every})
    assert max_difference(logits, expected.logits, mask) < 1e-4


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "ending",
    ["ForMaskedLM", "Model", "ForSequenceClassification", "ForMultipleChoice"],
)
def test_every_tensor_goes_in_and_out(ending, tmp_path):
    theirs = model_of(ending, num_labels=3)
    theirs.save_pretrained(tmp_path / "theirs")
    cls = {
        "ForMaskedLM": tasks.MaskedLM,
        "Model": models.MPNetBackbone,
        "ForSequenceClassification": tasks.TextClassifier,
        "ForMultipleChoice": tasks.MultipleChoice,
    }[ending]
    ours = cls.from_preset(str(tmp_path / "theirs"))
    ours.export_to_transformers(str(tmp_path / "ours"))
    again, info = type(theirs).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info.values())
    state = again.state_dict()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    before, after = (
        json.loads((tmp_path / name / "config.json").read_text())
        for name in ("theirs", "ours")
    )
    assert {k: v for k, v in before.items() if k in after and after[k] != v} == {}
    for key in ("max_position_embeddings", "relative_attention_num_buckets"):
        assert after[key] == before[key]
    ids = np.array([[0, 9, 10, 2]], "int32")
    if ending == "ForSequenceClassification":
        with torch.no_grad():
            expected = theirs(torch.tensor(ids).long()).logits
        assert max_difference(ours({"token_ids": ids}), expected) < 1e-4
    if ending == "ForMultipleChoice":
        with torch.no_grad():
            expected = theirs(torch.tensor(ids[None]).long()).logits
        assert max_difference(ours({"token_ids": ids[None]}), expected) < 1e-4


@pytest.mark.any_backend
def test_files_of_earlier_releases(tmp_path, folder):
    """They have numbers of positions, and the output table twice."""
    _, theirs = folder
    state = dict(theirs.state_dict())
    places = torch.arange(LENGTH + 2)[None]
    state["mpnet.embeddings.position_ids"] = places
    assert "lm_head.decoder.weight" in state and "lm_head.decoder.bias" in state
    theirs.config.save_pretrained(tmp_path)
    torch.save(state, tmp_path / "pytorch_model.bin")
    task = tasks.MaskedLM.from_preset(str(tmp_path))  # without a warning
    assert task.backbone.tie_embeddings
    table = task.backbone.encoder.relative_bias.table
    bias = theirs.mpnet.encoder.relative_attention_bias.weight
    assert max_difference(table, bias) == 0


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"relative_attention_num_buckets": 64}, "'relative_attention_num_b.*be 32"),
        ({"max_position_embeddings": 2}, "int greater than 2. Received: 2"),
        ({"max_position_embeddings": "9"}, "int greater than 2. Received: '9'"),
        ({"hidden_act": "mish"}, "'hidden_act'"),
        ({"hidden_size": None}, "'hidden_size' to be an integer"),
    ],
)
def test_configs_of_no_model_here(change, message, folder, tmp_path):
    path, theirs = folder
    theirs.save_pretrained(tmp_path)
    content = json.loads((path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**content, **change}))
    with pytest.raises(CheckpointError, match=message):
        models.MPNetBackbone.from_preset(str(tmp_path))


@pytest.mark.any_backend
def test_no_model_of_transformers():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8}
    for change, message in (
        ({"position_offset": 0}, "position_offset=0"),
        ({"relative_buckets": 8}, "relative_buckets=8"),
        ({"relative_distance": 64}, "relative_distance=64"),
        ({"max_sequence_length": None}, "has a table of positions"),
        ({"num_segments": 2}, "num_segments=2"),
    ):
        backbone = models.MPNetBackbone(9, **sizes, **change)
        with pytest.raises(ValueError, match=message):
            backbone.export_to_transformers("nowhere")


def test_a_tokenizers_files(tmp_path):
    tokenizer = MPNetTokenizer(WORDS, lowercase=True)
    rows = tokenize(tokenizer, tf.constant(TEXTS)).to_list()
    # BERT's ids, moved by 4; what isn't known is [UNK], not <unk>.
    bert = BertTokenizer(BERT, lowercase=True)
    theirs = tokenize(bert, tf.constant(TEXTS)).to_list()
    moved = [[k + 4 for k in row] for row in theirs]
    assert rows == moved and rows[1][1] == WORDS.index("[UNK]") == 5
    special = export_tokenizer(tokenizer, tmp_path)
    assert special == {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs) is transformers.MPNetTokenizer
    assert theirs(TEXTS, add_special_tokens=False)["input_ids"] == rows
    assert theirs.unk_token == "[UNK]" and theirs.mask_token_id == len(WORDS) - 1
    theirs.save_pretrained(tmp_path / "json")
    assert not (tmp_path / "json" / "vocab.txt").exists()
    for folder in (tmp_path, tmp_path / "json"):
        again = load_given_tokenizer(folder)
        assert type(again) is MPNetTokenizer and not again.added_tokens
        assert again.get_vocabulary() == WORDS
        assert tokenize(again, tf.constant(TEXTS)).to_list() == rows
    # A pipeline of its own is in a JSON, which says the rows.
    steps = {"normalizer": [{"type": "Lowercase"}]}
    steps["pre_tokenizer"] = [{"type": "WhitespaceSplit"}]
    other = MPNetTokenizer(WORDS, **steps)
    (tmp_path / "own").mkdir()
    export_tokenizer(other, tmp_path / "own")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "own")
    pair = theirs("a cat", "b").input_ids
    names = ["<s>", "a", "cat", "</s>", "</s>", "b", "</s>"]
    assert [WORDS[k] for k in pair] == names
    assert type(load_given_tokenizer(tmp_path / "own", "mpnet")) is MPNetTokenizer


def test_rows_and_masks_of_the_tokenizer(folder, tmp_path):
    path, theirs = folder
    own = transformers.AutoTokenizer.from_pretrained(path)
    preprocessor = tasks.TextClassifierPreprocessor(
        MPNetTokenizer(WORDS, lowercase=True), sequence_length=12
    )
    x = preprocessor((["the cat"], ["a mat"]), None)
    expected = own("the cat", "a mat")
    assert np.array(x["token_ids"]).tolist() == [expected["input_ids"]]
    assert np.array(x["padding_mask"]).astype(int).tolist() == [
        expected["attention_mask"]
    ]
    task = tasks.MaskedLM.from_preset(str(path))
    text = "The cat <mask> on"
    [[answer]] = task.fill_mask([text], top_k=3)
    tokens = own(text, return_tensors="pt")
    with torch.no_grad():
        logits = theirs(**tokens).logits[0, 3]
    best = [WORDS[k] for k in logits.topk(3).indices]
    assert [token for token, _ in answer] == best
    task.save_to_preset(str(tmp_path / "ours"))
    again = tasks.MaskedLM.from_preset(str(tmp_path / "ours"))
    assert type(again.preprocessor.tokenizer) is MPNetTokenizer
    for one, other in zip(again.weights, task.weights, strict=True):
        assert keras.ops.all(keras.ops.equal(one, other))


@pytest.mark.any_backend
def test_words_that_it_lacks_and_learned_vocabularies():
    with pytest.raises(ValueError, match="<mask>"):
        MPNetTokenizer(WORDS[:-1])
    with pytest.raises(ValueError, match="must contain <s>, .*Missing: <unk>"):
        MPNetTokenizer([word for word in WORDS if word != "<unk>"])
    documents = tf.data.Dataset.from_tensor_slices(["the cat sat", "the cats"] * 3)
    tokenizer = train_word_piece(documents, 30, family="mpnet")
    words = tokenizer.get_vocabulary()
    assert type(tokenizer) is MPNetTokenizer and tokenizer.lowercase
    assert words[:5] == ["<s>", "<pad>", "</s>", "<unk>", "[UNK]"]
    assert words[-1] == "<mask>" and len(words) <= 30
    more = extend_vocabulary(tokenizer, documents, 2, min_frequency=1)
    assert type(more) is MPNetTokenizer
    with pytest.raises(ValueError, match="`family` must be one of .*'bert', 'mpnet'"):
        train_word_piece(documents, 30, family="roberta")


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.any_backend
def test_the_published_vocabulary(data_dir, tmp_path):
    """That of BERT between special tokens; questions of SQuAD as BERT splits them."""
    path = data_dir / "tokenizers" / "bert_uncased" / "vocab.txt"
    bert = BertTokenizer(str(path), lowercase=True)
    words = ["<s>", "<pad>", "</s>", "<unk>", *bert.get_vocabulary(), "<mask>"]
    tokenizer = MPNetTokenizer(words, lowercase=True)
    assert tokenizer.vocabulary_size() == 30527
    ids = (tokenizer.mask_token_id, tokenizer.token_to_id("[UNK]"))
    assert ids == (30526, 104)
    texts = ["Hello, my dog is cute", "naïve Ångström ☃ 東京", "un" * 120]
    export_tokenizer(tokenizer, tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    rows = tokenize(tokenizer, tf.constant(texts)).to_list()
    assert theirs(texts[:2], add_special_tokens=False)["input_ids"] == rows[:2]
    assert rows[0] == [k + 4 for k in (7592, 1010, 2026, 3899, 2003, 10140)]


@pytest.mark.slow
@pytest.mark.any_backend
def test_embedders_of_sentence_transformers(folder, tmp_path):
    """A folder as that of all-mpnet-base-v2."""
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import modules as parts

    base = tmp_path / "base"
    model_of("Model").save_pretrained(base)
    export_tokenizer(MPNetTokenizer(WORDS, lowercase=True), base)
    modules = [
        parts.Transformer(str(base), max_seq_length=12),
        parts.Pooling(16, pooling_mode="mean"),
        parts.Normalize(),
    ]
    theirs = library.SentenceTransformer(modules=modules, device="cpu")
    theirs.save(str(tmp_path / "in"))
    ours = tasks.TextEmbedder.from_preset(str(tmp_path / "in"))
    assert type(ours.backbone) is models.MPNetBackbone
    assert (ours.pooling, ours.normalize) == ("mean", True)
    texts = [*TEXTS, "a b c . " * 9]
    found = ours.predict(texts, batch_size=8, verbose=0)
    np.testing.assert_allclose(found, theirs.encode(texts), atol=2e-5)
    ours.export_to_sentence_transformers(str(tmp_path / "out"))
    again = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(again.encode(texts), found, atol=2e-5)
