"""Checkpoints of TensorFlow 1, as google-research and XLNet's authors released them."""

import json
import re
import shutil

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import EncoderBackbone, XLNetBackbone
from keras_bertfam.presets import CheckpointError
from keras_bertfam.tasks import (
    MaskedLM,
    MaskedLMSentencePair,
    PermutationLM,
    ReplacedTokenDetection,
    SpanQuestionAnswering,
    TextClassifier,
)
from tests.converted import assert_converts_whole
from tests.huge_numbers import check_numbers
from tests.tensorflow1_files import save, variables_of

pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = dict(
    vocab_size=20,
    hidden_size=128,  # two heads: released models of ELECTRA don't say how many
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=10,
    type_vocab_size=2,
    hidden_act="gelu_new",
)
XLNET = dict(vocab_size=20, d_model=16, n_layer=2, n_head=2, d_inner=24)


def build(cls, **kwargs):
    """A model of `transformers` of which no weight is like another."""
    config = cls.config_class(**{**SIZES, **kwargs})
    torch.manual_seed(0)
    model = cls(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def original_config(model):
    """What the original repositories write: their GELU has one name."""
    config = {k: v for k, v in model.config.to_dict().items() if k in _KEYS}
    return {**config, "hidden_act": "gelu"}


_KEYS = {*SIZES, "embedding_size", "num_hidden_groups", "hidden_dropout_prob"}
_KEYS |= {"attention_probs_dropout_prob", "initializer_range", "inner_group_num"}
IDS = np.array([[2, 7, 9, 3, 11, 3]])
SEGMENTS = np.array([[0, 0, 0, 0, 1, 1]])


def inputs():
    return {"token_ids": IDS, "segment_ids": SEGMENTS}


def theirs(model, **kwargs):
    with torch.no_grad():
        return model(
            input_ids=torch.tensor(IDS), token_type_ids=torch.tensor(SEGMENTS), **kwargs
        )


def close(ours, expected, atol=1e-5):
    np.testing.assert_allclose(ops.convert_to_numpy(ours), expected.numpy(), atol=atol)


def untied(name):
    return not re.search(r"decoder|position_ids|lm_head\.weight|lm_loss\.weight", name)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    model = build(transformers.BertForPreTraining)
    variables = variables_of(model, "bert", keep=untied)
    folder = tmp_path_factory.mktemp("bert") / "uncased"
    return model, save(folder, variables, original_config(model))


@pytest.fixture(scope="module")
def albert(tmp_path_factory):
    model = build(
        transformers.AlbertForPreTraining,
        embedding_size=8,
        num_hidden_groups=2,
        inner_group_num=1,
    )
    variables = variables_of(model, "albert", keep=untied)
    folder = tmp_path_factory.mktemp("albert") / "albert"
    return model, save(folder, variables, original_config(model), "albert_config.json")


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_pair_of_sentences_with_both_heads(family, request):
    model, path = request.getfixturevalue(family)
    task = MaskedLMSentencePair.from_preset(path)
    expected = theirs(model)
    positions = np.arange(IDS.shape[1])[None]
    got = task({**inputs(), "mask_positions": positions})
    logits, sentence = keras.tree.flatten(got)
    logits, sentence = sorted((logits, sentence), key=lambda x: -len(x.shape))
    close(logits, expected.prediction_logits, 1e-4)
    other = getattr(expected, "seq_relationship_logits", None)
    close(sentence, expected.sop_logits if other is None else other, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "albert"])
def test_both_heads_are_converted(family, request, tmp_path):
    _, path = request.getfixturevalue(family)
    assert_converts_whole(MaskedLMSentencePair, path, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "albert"])
@pytest.mark.parametrize("ending", ["", "/model.ckpt", "/model.ckpt.index"])
def test_states_from_a_folder_or_a_path(family, ending, request):
    model, path = request.getfixturevalue(family)
    with pytest.warns(UserWarning, match="left out: .*predictions") as caught:
        backbone = EncoderBackbone.from_preset(path + ending)
    assert "adam_m" not in str(caught[0].message)
    states = getattr(model, family)(
        input_ids=torch.tensor(IDS), token_type_ids=torch.tensor(SEGMENTS)
    )
    outputs = backbone(inputs())
    close(outputs["sequence_output"], states.last_hidden_state.detach())
    close(outputs["pooled_output"], states.pooler_output.detach())


def test_the_tokenizer_and_its_case(bert, tmp_path):
    _, path = bert
    with pytest.warns(UserWarning, match="seq_relationship"):
        task = MaskedLM.from_preset(path)
    assert task.preprocessor.tokenizer.lowercase
    assert list(task.preprocessor.tokenizer("A b")) == [5, 6]


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_heads_of_fine_tuning(family, tmp_path):
    """`run_classifier.py` and `run_squad.py` name them alike for both."""
    title = {"bert": "Bert", "albert": "Albert"}[family]
    sizes = {"embedding_size": 8} if family == "albert" else {}
    for ending, ours, at, kwargs in (
        ("SequenceClassification", TextClassifier, "", {"num_labels": 3}),
        ("QuestionAnswering", SpanQuestionAnswering, "cls/squad/", {}),
    ):
        model = build(getattr(transformers, f"{title}For{ending}"), **sizes, **kwargs)
        head = model.classifier if at == "" else model.qa_outputs
        variables = variables_of(model, family, keep=lambda n: n.startswith(family))
        variables[f"{at}output_weights"] = head.weight.detach().numpy()
        variables[f"{at}output_bias"] = head.bias.detach().numpy()
        folder = tmp_path / ending
        path = save(folder, variables, original_config(model))
        (folder / "vocab.txt").unlink()  # rows are too short for questions
        task = ours.from_preset(path)
        expected, outputs = theirs(model), task(inputs())
        if at:
            close(outputs["start_logits"], expected.start_logits, 1e-4)
            close(outputs["end_logits"], expected.end_logits, 1e-4)
        else:
            close(outputs, expected.logits, 1e-4)


def electra_variables():
    discriminator = build(transformers.ElectraForPreTraining, embedding_size=8)
    generator = build(
        transformers.ElectraForMaskedLM,
        embedding_size=8,
        hidden_size=64,
        num_attention_heads=1,
        intermediate_size=16,
    )
    tables = {
        name: tensor
        for name, tensor in discriminator.state_dict().items()
        if name.startswith("electra.embeddings.")
    }
    generator.load_state_dict(tables, strict=False)
    variables = variables_of(discriminator, "electra", keep=untied)
    variables |= variables_of(
        generator,
        "electra",
        prefix="generator/",
        keep=lambda n: untied(n) and not n.startswith("electra.embeddings."),
    )
    return discriminator, generator, variables


@pytest.mark.slow
@pytest.mark.parametrize("with_config", [False, True])
def test_electra(with_config, tmp_path):
    discriminator, generator, variables = electra_variables()
    config = original_config(discriminator) if with_config else None
    path = save(tmp_path / "electra", variables, config)
    task = ReplacedTokenDetection.from_preset(path)
    states = task.backbone(inputs())["sequence_output"]
    close(states, theirs(discriminator.electra).last_hidden_state)
    states = task.generator(inputs())["sequence_output"]
    close(states, theirs(generator.electra).last_hidden_state)
    logits = task.generator_head(states)
    # That head has the erf form in `transformers`, the tanh form in the original.
    close(logits, theirs(generator).logits, 1e-3)
    if with_config:
        assert_converts_whole(ReplacedTokenDetection, path, tmp_path / "out")


XLNET_CONFIG = {
    "d_head": 8,
    "d_inner": 24,
    "d_model": 16,
    "ff_activation": "gelu",
    "n_head": 2,
    "n_layer": 2,
    "n_token": 20,
    "untie_r": True,
}


def build_xlnet():
    config = transformers.XLNetConfig(**XLNET, ff_activation="gelu_new")
    torch.manual_seed(0)
    model = transformers.XLNetLMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def test_xlnet(tmp_path):
    model, original = build_xlnet(), dict(XLNET_CONFIG)
    variables = variables_of(model, "xlnet", keep=untied)
    path = save(tmp_path / "xlnet", variables, original, "xlnet_config.json")
    (tmp_path / "xlnet" / "vocab.txt").unlink()
    task = PermutationLM.from_preset(path)
    states = theirs(model.transformer).last_hidden_state
    close(task.backbone(inputs())["sequence_output"], states)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(task.head.bias), model.lm_loss.bias.detach().numpy()
    )
    assert_converts_whole(PermutationLM, path, tmp_path / "out")
    with pytest.warns(UserWarning, match="lm_loss.bias"):
        assert XLNetBackbone.from_preset(path).activation == "gelu_tanh"
    original["d_head"] = 4
    (tmp_path / "xlnet" / "xlnet_config.json").write_text(json.dumps(original))
    with pytest.raises(CheckpointError, match="'d_head'.*8. Received: 4"):
        XLNetBackbone.from_preset(path)


@pytest.mark.slow
def test_an_albert_of_one_width(tmp_path):
    """The original maps embeddings to states only where the widths differ."""
    model = build(
        transformers.AlbertForPreTraining, embedding_size=128, inner_group_num=1
    )
    mapping = model.albert.encoder.embedding_hidden_mapping_in
    with torch.no_grad():
        mapping.weight.copy_(torch.eye(128))
        mapping.bias.zero_()
    variables = variables_of(
        model, "albert", keep=lambda n: untied(n) and "mapping_in" not in n
    )
    path = save(tmp_path / "albert", variables, original_config(model))
    task = MaskedLMSentencePair.from_preset(path)
    states = theirs(model.albert).last_hidden_state
    close(task.backbone(inputs())["sequence_output"], states)
    assert_converts_whole(MaskedLMSentencePair, path, tmp_path / "out")
    task.export_to_transformers(tmp_path / "back")
    back = transformers.AlbertForPreTraining.from_pretrained(tmp_path / "back").eval()
    np.testing.assert_allclose(
        theirs(back).prediction_logits, theirs(model).prediction_logits, atol=1e-5
    )


def test_a_fine_tuned_xlnet_has_no_query_state(tmp_path):
    """Code that predicts no tokens never made `mask_emb`."""
    model = build_xlnet()
    variables = variables_of(
        model, "xlnet", keep=lambda name: untied(name) and "mask_emb" not in name
    )
    path = save(tmp_path / "xlnet", variables, XLNET_CONFIG, "xlnet_config.json")
    (tmp_path / "xlnet" / "vocab.txt").unlink()
    with pytest.warns(UserWarning, match=r"and new: [^ ]*query_embedding/[^ ,]+\."):
        task = PermutationLM.from_preset(path)
    states = theirs(model.transformer).last_hidden_state
    close(task.backbone(inputs())["sequence_output"], states)
    state = ops.convert_to_numpy(task.backbone.query_embedding.embeddings)
    assert state.any() and np.abs(state).max() < 0.2


def test_an_xlnet_whose_layers_share_biases(tmp_path):
    """`untie_r` false: the three biases have no axis of layers."""
    model = build_xlnet()
    first, second = (layer.rel_attn for layer in model.transformer.layer)
    biases = [f"r_{kind}_bias" for kind in "wrs"]
    with torch.no_grad():
        for name in biases:
            getattr(second, name).copy_(getattr(first, name))
    variables = variables_of(model, "xlnet", keep=untied)
    for name in biases:
        variables[f"model/transformer/{name}"] = getattr(first, name).detach().numpy()
    config = {**XLNET_CONFIG, "untie_r": False}
    path = save(tmp_path / "xlnet", variables, config, "xlnet_config.json")
    (tmp_path / "xlnet" / "vocab.txt").unlink()
    backbone = PermutationLM.from_preset(path).backbone
    assert not backbone.untie_biases and backbone.encoder.biases.shape == (3, 2, 8)
    states = theirs(model.transformer).last_hidden_state
    close(backbone(inputs())["sequence_output"], states)
    with pytest.raises(ValueError, match="untie_biases=False"):
        backbone.export_to_transformers(tmp_path / "out")


# === Damaged ===


def copy(bert, tmp_path):
    return shutil.copytree(bert[1], tmp_path / "copy")


@pytest.mark.parametrize("file", ["model.ckpt.index", "model.ckpt.data-00000-of-00001"])
@pytest.mark.parametrize("share", [0, 0.5])
def test_truncated(file, share, bert, tmp_path):
    folder = copy(bert, tmp_path)
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: int(share * len(content))])
    with pytest.raises(CheckpointError):
        EncoderBackbone.from_preset(str(folder))


def test_an_index_that_declares_more_than_is_stored(bert, tmp_path):
    folder = copy(bert, tmp_path)
    data = folder / "model.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"Expected: \d+ bytes"):
        EncoderBackbone.from_preset(str(folder))


def test_without_its_config(bert, tmp_path):
    folder = copy(bert, tmp_path)
    (folder / "bert_config.json").unlink()
    with pytest.raises(CheckpointError, match="bert_config.json"):
        EncoderBackbone.from_preset(str(folder))


def test_a_link_elsewhere(bert, tmp_path):
    folder = copy(bert, tmp_path)
    data = folder / "model.ckpt.data-00000-of-00001"
    data.rename(tmp_path / "elsewhere")
    data.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="link to another folder"):
        EncoderBackbone.from_preset(str(folder))


def test_another_model(tmp_path):
    path = save(tmp_path / "other", {"resnet/kernel": np.ones((2, 2), "f4")})
    with pytest.raises(CheckpointError, match="albert, bert, electra, t5, xlnet"):
        EncoderBackbone.from_preset(path)


def test_numbers_that_no_model_has(albert, tmp_path):
    folder = shutil.copytree(albert[1], tmp_path / "copy")
    load = EncoderBackbone.from_preset
    assert len(check_numbers(folder, "albert_config.json", load)) > 5
