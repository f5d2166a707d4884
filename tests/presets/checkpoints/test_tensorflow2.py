"""Checkpoints and SavedModels of TensorFlow 2, with the Model Garden's names."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, tasks
from tests.from_transformers import max_difference, randomize
from tests.tensorflow1_files import VOCABULARY

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": len(VOCABULARY), "hidden_size": 12, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 3, "intermediate_size": 16}
SIZES |= {"max_position_embeddings": 10, "type_vocab_size": 2}
SIZES |= {"hidden_act": "gelu_new"}
FAMILIES = {"bert": ("Bert", {}), "albert": ("Albert", {"embedding_size": 6})}
FAMILIES["electra"] = ("Electra", {"embedding_size": 6})
# Names of `transformers` and what the Model Garden calls its variables.
RENAMED = (
    (r"encoder\.layer\.(\d+)\.", r"transformer/layer_\1/"),
    (r"encoder\.albert_layer_groups\.0\.albert_layers\.0\.", "transformer/"),
    (r"attention\.self\.", "self_attention/"),
    (r"attention\.(query|key|value)", r"self_attention/\1"),
    (r"attention\.(output\.)?dense", "self_attention/attention_output"),
    (r"attention\.(output\.)?LayerNorm", "self_attention_layer_norm"),
    (r"/(output\.LayerNorm|full_layer_layer_norm)", "/output_layer_norm"),
    (r"/(output\.dense|ffn_output)", "/output"),
    (r"/(intermediate\.dense|ffn)\.", "/intermediate."),
    (r"embeddings_project|encoder.embedding_hidden_mapping_in", "embedding_projection"),
    (r"pooler(\.dense)?\.", "pooler_transform."),
    (r"embeddings\.word_embeddings\.weight", "word_embeddings/embeddings"),
    (r"embeddings\.position_embeddings\.weight", "position_embedding/embeddings"),
    (r"embeddings\.token_type_embeddings\.weight", "type_embeddings/embeddings"),
    (r"embeddings\.LayerNorm", "embeddings/layer_norm"),
    (r"(norm)\.weight", r"\1.gamma"),
    (r"(norm)\.bias", r"\1.beta"),
    (r"\.weight", ".kernel"),
    (r"\.", "/"),
)


def build(family):
    title, settings = FAMILIES[family]
    config = getattr(transformers, f"{title}Config")(
        **SIZES, **settings, layer_norm_eps=1e-12
    )
    return randomize(getattr(transformers, f"{title}Model")(config), 0.2)


def variables_of(model, within=""):
    """Variables as the Model Garden has them, heads on an axis of their own."""
    heads, variables = SIZES["num_attention_heads"], []
    for name, tensor in model.state_dict().items():
        for pattern, new in RENAMED:
            name = re.sub(pattern, new, name)
        array = tensor.numpy()
        if name.endswith("kernel"):
            array = array.T
        if re.search("self_attention/(query|key|value)/", name):
            array = array.reshape(*array.shape[:-1], heads, -1)
        if name.endswith("attention_output/kernel"):
            array = array.reshape(heads, -1, array.shape[-1])
        variables.append(tf.Variable(array, name=f"{within}{name}"))
    return variables


def save(folder, family, form, within=""):
    """A folder with a checkpoint or a SavedModel; gives the model of `transformers`."""
    model = build(family)
    module = tf.Module()
    module.listed = variables_of(model, within)
    folder.mkdir()
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(VOCABULARY) + "\n")
    if form == "checkpoint":
        optimizer = tf.Module()
        optimizer.step = tf.Variable(3, name="Adam/iter")
        tf.train.Checkpoint(encoder=module, optimizer=optimizer).save(folder / "ckpt")
    else:
        module.vocab_file = tf.saved_model.Asset(str(vocabulary))
        module.do_lower_case = tf.Variable(True, trainable=False)
        tf.saved_model.save(module, str(folder))
        vocabulary.unlink()
    if family == "albert":  # the number of its blocks is in no shape
        config = {**model.config.to_dict(), "hidden_act": "gelu"}
        (folder / "albert_config.json").write_text(json.dumps(config))
    return model


@pytest.mark.parametrize("form", ["checkpoint", "saved_model"])
@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_those_of_transformers(family, form, tmp_path):
    theirs = save(tmp_path / "folder", family, form, within="some_model/")
    ours = models.Backbone.from_preset(str(tmp_path / "folder"))
    assert ours.record.name == family
    ids = np.random.default_rng(0).integers(5, len(VOCABULARY), (3, 8))
    mask = np.arange(8) < np.array([[8], [5], [1]])
    types = (np.arange(8) > 3).astype("int32")[None].repeat(3, 0)
    given = {"token_ids": ids, "padding_mask": mask, "segment_ids": types}
    with torch.no_grad():
        expected = theirs(
            torch.tensor(ids), torch.tensor(mask), torch.tensor(types).long()
        )
    found = ours(given)
    assert max_difference(found["sequence_output"], expected[0], mask) < 1e-5
    if family != "electra":
        assert max_difference(found["pooled_output"], expected[1]) < 1e-5


@pytest.mark.parametrize("form", ["checkpoint", "saved_model"])
def test_the_vocabulary_beside_it(form, tmp_path):
    save(tmp_path / "folder", "bert", form)
    with pytest.warns(UserWarning, match="new"):
        task = tasks.MaskedLM.from_preset(str(tmp_path / "folder"))
    assert task.preprocessor.tokenizer.get_vocabulary() == VOCABULARY
    assert task.preprocessor.tokenizer.lowercase


def test_what_is_missing_is_said(tmp_path):
    save(tmp_path / "folder", "albert", "checkpoint")
    (tmp_path / "folder" / "albert_config.json").unlink()
    with pytest.raises(ValueError, match="lacks a config"):
        models.Backbone.from_preset(str(tmp_path / "folder"))
    module = tf.Module()
    module.twice = variables_of(build("bert"), "a/") + variables_of(build("bert"), "b/")
    (tmp_path / "two").mkdir()
    tf.train.Checkpoint(encoder=module).save(tmp_path / "two" / "ckpt")
    with pytest.raises(ValueError, match="must have one 'bert/embeddings/"):
        models.Backbone.from_preset(str(tmp_path / "two"))


def test_parts_that_lead_elsewhere_or_lack(tmp_path):
    save(tmp_path / "folder", "bert", "saved_model")
    (tmp_path / "folder" / "assets").rename(tmp_path / "elsewhere")
    assert models.Backbone.from_preset(str(tmp_path / "folder")).record.name == "bert"
    (tmp_path / "folder" / "assets").symlink_to(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="new"):
        task = tasks.MaskedLM.from_preset(str(tmp_path / "folder"))
    assert task.preprocessor is None
    (tmp_path / "folder" / "variables").rename(tmp_path / "others")
    (tmp_path / "folder" / "variables").symlink_to(tmp_path / "others")
    with pytest.raises(ValueError, match="folder"):
        models.Backbone.from_preset(str(tmp_path / "folder"))
