"""From folders of `transformers` to ours and back, for each family and task."""

import json
import pathlib

import keras
import numpy as np
import pytest

from keras_bertfam import models, tasks
from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.families import transformers_tables
from tests.from_transformers import convert, max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

SIZES = {
    "vocabulary_size": 20,
    "hidden_dim": 8,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_dim": 12,
    "max_sequence_length": 12,
}
# What is worth another value than the usual one.
OTHERS = {
    "Roberta": {"type_vocab_size": 1},
    "Albert": {"embedding_size": 4, "num_hidden_groups": 2},
    "Electra": {"embedding_size": 4},
    "Longformer": {"type_vocab_size": 1, "attention_window": 4},
    "ModernBert": {"local_attention": 4, "pad_token_id": None},
    "EuroBert": {"num_key_value_heads": 1, "pad_token_id": None, "head_dim": 4},
}
# What the released models have.
OTHERS["Deberta"] = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
}
OTHERS["DebertaV2"] = {
    **OTHERS["Deberta"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 4,
    "conv_kernel_size": 3,
    "conv_act": "gelu",
}
# Those whose one row of token types is added to the positions.
TYPED = ("Roberta", "Longformer", "XLMRobertaXL")
# Those that write texts are tested in test_hf_text_to_text.py.
# NeoBERT isn't there; it is tested in tests/models/test_neobert.py. XLM, whose classes
# have other names, is in tests/models/test_xlm.py.
THERE = {
    name: table
    for name, table in transformers_tables().items()
    if hasattr(transformers, f"{table.title}Config") and name != "xlm"
}
TABLES = [t for t in THERE.values() if "masked_lm" in t.heads]
CONFIGS = {
    table.title: {
        **{theirs: SIZES[ours] for ours, theirs, _ in table.config if ours in SIZES},
        **OTHERS.get(table.title, {}),
    }
    for table in TABLES
}
# Ending of the class in `transformers`, and ours.
KINDS = {
    **{f"{family}Model": f"{family}Backbone" for family in CONFIGS},
    **{f"{family}ForMaskedLM": "MaskedLM" for family in CONFIGS if family != "XLNet"},
    "BertForPreTraining": "MaskedLMSentencePair",
    "AlbertForPreTraining": "MaskedLMSentencePair",
    "ElectraForPreTraining": "ReplacedTokenDetection",
    "XLNetLMHeadModel": "PermutationLM",
}
IDS = np.array([[3, 4, 5, 6], [7, 8, 9, 3]], "int32")


def our_class(name):
    return getattr(models, name, None) or getattr(tasks, name)


def make_theirs(architecture, **kwargs):
    family = max((n for n in CONFIGS if architecture.startswith(n)), key=len)
    config = getattr(transformers, f"{family}Config")(**CONFIGS[family], **kwargs)
    return randomize(getattr(transformers, architecture)(config), 0.1)


def arrays(model):
    return [keras.ops.convert_to_numpy(v) for v in model.weights]


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("architecture", KINDS)
def test_in_out_and_in_again_is_the_identity(architecture, tmp_path):
    theirs = make_theirs(architecture)
    theirs.save_pretrained(tmp_path / "theirs")
    if architecture == "ElectraForPreTraining":
        generator = make_theirs("ElectraForMaskedLM")
        generator.save_pretrained(tmp_path / "theirs" / "generator")
    cls = our_class(KINDS[architecture])
    ours = cls.from_preset(str(tmp_path / "theirs"))
    backbone = getattr(ours, "backbone", ours)
    with torch.no_grad():
        expected = theirs(torch.tensor(IDS).long(), output_hidden_states=True)
    states = backbone({"token_ids": IDS}, return_hidden_states=True)["hidden_states"]
    for state, target in zip(states, expected.hidden_states, strict=True):
        assert max_difference(state, target) < 1e-5

    ours.export_to_transformers(tmp_path / "ours")
    again, info = type(theirs).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info.values())
    config, other = (json_of(tmp_path / name) for name in ("theirs", "ours"))
    assert other["architectures"] == config["architectures"] == [architecture]
    same = {key: value for key, value in config.items() if key in other}
    assert {**other, **same, "dtype": "float32"} == other
    before, after = theirs.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    moved = {"position_embeddings", "token_type_embeddings"}
    for name, tensor in before.items():
        typed = architecture.startswith(TYPED)
        if not typed or not any(part in name for part in moved):
            assert torch.equal(tensor, after[name]), name

    last = cls.from_preset(str(tmp_path / "ours"))
    for first, second in zip(arrays(ours), arrays(last), strict=True):
        np.testing.assert_array_equal(first, second)
    if architecture == "ElectraForPreTraining":
        head = generator.generator_lm_head.bias
        assert max_difference(last.generator_head.bias, head) == 0


def json_of(folder, name="config.json"):
    return json.loads(pathlib.Path(folder, name).read_text())


def test_heads_give_the_logits_of_transformers():
    x = {"token_ids": IDS, "mask_positions": np.array([[1, 2], [0, 3]], "int32")}
    rows = np.arange(2)[:, None]
    for architecture in ("RobertaForMaskedLM", "AlbertForPreTraining"):
        theirs = make_theirs(architecture)
        ours = convert(our_class(KINDS[architecture]), theirs)
        with torch.no_grad():
            expected = theirs(torch.tensor(IDS).long())
        logits = getattr(expected, "prediction_logits", expected.get("logits"))
        outputs = ours(x)
        if isinstance(outputs, dict):
            assert max_difference(outputs["sentence"], expected.sop_logits) < 1e-4
            outputs = outputs["masked_lm"]
        picked = logits[torch.tensor(rows), torch.tensor(x["mask_positions"]).long()]
        assert max_difference(outputs, picked) < 1e-4


def test_what_is_missing_and_left_over_is_named_once(tmp_path):
    make_theirs("BertForPreTraining").save_pretrained(tmp_path)
    with pytest.warns(UserWarning) as warned:
        masked_lm = tasks.MaskedLM.from_preset(str(tmp_path))
    assert len(warned) == 1
    assert warned[0].filename == __file__
    text = str(warned[0].message)
    assert "left out: cls.seq_relationship.bias, cls.seq_relationship.weight" in text
    assert "and new" not in text
    make_theirs("BertModel").save_pretrained(tmp_path / "model")
    with pytest.warns(UserWarning, match="and new: .*head.*dense/kernel") as warned:
        tasks.MaskedLM.from_preset(str(tmp_path / "model"))
    assert len(warned) == 1 and "left out" not in str(warned[0].message)
    assert masked_lm.backbone.pooler is not None
    # A pooler that only the caller wants is new.
    make_theirs("BertForMaskedLM").save_pretrained(tmp_path / "masked")
    assert tasks.MaskedLM.from_preset(str(tmp_path / "masked")).backbone.pooler is None
    with pytest.warns(UserWarning, match="and new: .*pooler"):
        other = models.BertBackbone.from_preset(str(tmp_path / "masked"), pooler=True)
    assert np.std(arrays(other.pooler)[0]) > 0.01


def test_load_weights_dtype_and_other_arguments(tmp_path):
    theirs = make_theirs("BertModel")
    theirs.save_pretrained(tmp_path)
    new = models.BertBackbone.from_preset(str(tmp_path), load_weights=False)
    table = theirs.embeddings.word_embeddings.weight
    assert max_difference(new.token_embedding.embeddings, table) > 0.01
    half = models.EncoderBackbone.from_preset(str(tmp_path), dtype="bfloat16")
    assert type(half) is models.BertBackbone
    assert half.token_embedding.embeddings.dtype == "bfloat16"
    half.export_to_transformers(tmp_path / "half")
    assert json_of(tmp_path / "half")["dtype"] == "bfloat16"
    back = models.BertBackbone.from_preset(str(tmp_path / "half"), dropout=0.0)
    assert back.dropout == 0.0
    difference = max_difference(back.token_embedding.embeddings, table)
    assert 0 < difference < 0.01 * float(table.detach().abs().max())
    span = models.SpanBertBackbone.from_preset(str(tmp_path))
    assert type(span) is models.SpanBertBackbone
    with pytest.raises(CheckpointError, match="which holds a BertBackbone or SpanB"):
        models.RobertaBackbone.from_preset(str(tmp_path))


def test_shards_pickles_and_old_names(tmp_path):
    theirs = make_theirs("BertForMaskedLM")
    whole = convert(tasks.MaskedLM, theirs)
    theirs.save_pretrained(tmp_path / "shards", max_shard_size="2KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    state = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in theirs.state_dict().items()
    }
    for name, zipped in (("pickle", True), ("old_pickle", False)):
        theirs.config.save_pretrained(tmp_path / name)
        path = tmp_path / name / "pytorch_model.bin"
        torch.save(state, path, _use_new_zipfile_serialization=zipped)
    for name in ("shards", "pickle", "old_pickle"):
        other = tasks.MaskedLM.from_preset(str(tmp_path / name))
        for first, second in zip(arrays(whole), arrays(other), strict=True):
            np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_a_task_comes_with_its_tokenizer(tmp_path):
    theirs = make_theirs("BertForMaskedLM")
    theirs.save_pretrained(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    with pytest.warns(UserWarning, match="tokenizer has 8 tokens for 20 embeddings"):
        model = tasks.MaskedLM.from_preset(str(tmp_path))
    assert isinstance(model.preprocessor, tasks.MaskedLMPreprocessor)
    assert model.preprocessor.tokenizer.lowercase
    assert len(model.fill_mask("a [MASK]", top_k=2)[0]) == 2
    model.export_to_transformers(tmp_path / "ours")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert tokenizer("A cats").input_ids == [2, 5, 6, 7, 3]
    with pytest.warns(UserWarning, match="tokenizer has 8 tokens for 20 embeddings"):
        again = tasks.MaskedLM.from_preset(str(tmp_path / "ours"))
    assert model.preprocessor.sequence_length == 12
    assert again.preprocessor.tokenizer.get_vocabulary() == words
    # More tokens than the table has rows.
    more = [*words, *(f"w{i}" for i in range(20))]
    (tmp_path / "vocab.txt").write_text("\n".join(more) + "\n")
    with pytest.raises(ValueError, match="at most vocabulary_size=20"):
        tasks.MaskedLM.from_preset(str(tmp_path))


def test_no_model_of_transformers():
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8)

    def backbone(cls=models.BertBackbone, **kwargs):
        return cls(vocabulary_size=9, **{**sizes, **kwargs})

    for model, message in (
        (backbone(share="all"), "share='all'"),
        (backbone(norm_first=True), "norm_first=True"),
        (backbone(head_dim=3), "head_dim=3"),
        (backbone(activation="mish"), "'hidden_act' .*'mish'"),
        (backbone(models.DistilBertBackbone, num_segments=2), "num_segments=2"),
        (backbone(models.XLNetBackbone, untie_biases=False), "untie_biases=False"),
        (backbone(models.ElectraBackbone, pooler=True), "no pooler"),
        (tasks.MaskedLMSentencePair(backbone(models.RobertaBackbone)), "of this kind"),
        (tasks.SpanBoundaryLM(backbone()), "no place for .*span_boundary_head"),
    ):
        with pytest.raises(ValueError, match=message):
            model.export_to_transformers("nowhere")
    assert not pathlib.Path("nowhere").exists()


@pytest.mark.parametrize("family", ["Electra", "Roberta"])
def test_the_activation_of_masked_lm_heads(family, tmp_path):
    """`transformers` computes erf GELU there, whatever the config says."""
    cls = getattr(models, f"{family}Backbone")
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8)
    note = "GELU in the head .* differ by about 1e-3"
    ours = tasks.MaskedLM(cls(vocabulary_size=20, activation="gelu_tanh", **sizes))
    with pytest.warns(UserWarning, match=note) as warned:
        ours.export_to_transformers(tmp_path / "tanh")
    (warning,) = [w for w in warned if w.category is UserWarning]
    assert warning.filename == __file__
    theirs = getattr(transformers, f"{family}ForMaskedLM")
    with torch.no_grad():
        expected = theirs.from_pretrained(tmp_path / "tanh")(torch.tensor(IDS).long())
    assert max_difference(ours({"token_ids": IDS}), expected.logits) < 3e-3
    with pytest.warns(UserWarning, match=note):
        again = tasks.MaskedLM.from_preset(str(tmp_path / "tanh"))
    np.testing.assert_array_equal(
        *(keras.ops.convert_to_numpy(m({"token_ids": IDS})) for m in (ours, again))
    )
    # A backbone's is the config's, and so is any other head's.
    ours.backbone.export_to_transformers(tmp_path / "backbone")
    assert json_of(tmp_path / "backbone")["hidden_act"] == "gelu_new"

    relu = tasks.MaskedLM(cls(vocabulary_size=20, activation="relu", **sizes))
    with pytest.raises(ValueError, match="'gelu' in .*Received: activation='relu'"):
        relu.export_to_transformers(tmp_path / "relu")
    with pytest.raises(CheckpointError, match="Received: activation='relu'"):
        convert(tasks.MaskedLM, make_theirs(f"{family}ForMaskedLM", hidden_act="relu"))


def test_a_decoders_head_has_their_activation(tmp_path):
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8)
    backbone = models.ModernBertDecoderBackbone(20, activation="relu", **sizes)
    with pytest.raises(ValueError, match="'gelu' in .*Received: activation='relu'"):
        tasks.CausalLM(backbone).export_to_transformers(tmp_path / "relu")


def test_a_family_of_its_own_making_and_distilroberta(tmp_path):
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8)
    plain = models.EncoderBackbone(vocabulary_size=9, num_segments=2, **sizes)
    plain.export_to_transformers(tmp_path / "plain")
    assert json_of(tmp_path / "plain")["model_type"] == "bert"
    distilled = models.DistilBertBackbone(
        vocabulary_size=9, position_offset=2, layer_norm_epsilon=1e-5, **sizes
    )
    distilled.export_to_transformers(tmp_path / "distilled")
    assert json_of(tmp_path / "distilled")["model_type"] == "roberta"
    again = models.DistilBertBackbone.from_preset(str(tmp_path / "distilled"))
    for first, second in zip(arrays(distilled), arrays(again), strict=True):
        np.testing.assert_array_equal(first, second)


def test_an_interrupted_export_leaves_what_was_there(tmp_path, monkeypatch):
    first, second = make_theirs("BertModel"), make_theirs("BertModel")
    convert(models.BertBackbone, first).export_to_transformers(tmp_path / "out")
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors_numpy, "save_file", full)
    with pytest.raises(OSError, match="No space"):
        convert(models.BertBackbone, second).export_to_transformers(tmp_path / "out")
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
