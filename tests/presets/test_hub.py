"""Published checkpoints: their names, and how they come from a hub."""

import json
import pathlib

import huggingface_hub
import kagglehub
import keras
import numpy as np
import pytest
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from typer.testing import CliRunner

from keras_bertfam.cli.app import app
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import (
    BertBackbone,
    DistilBertBackbone,
    ElmoBackbone,
    EncoderBackbone,
    GPT2Backbone,
    SpanBertBackbone,
)
from keras_bertfam.presets import list_presets
from keras_bertfam.presets.checkpoints import file_keys
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.hub import locate
from keras_bertfam.presets.names import PublishedPreset
from keras_bertfam.tasks import (
    CausalLM,
    MaskedLM,
    MaskedLMPreprocessor,
    TextEmbedder,
    TextEmbedderPreprocessor,
)

NAMES = list_presets()


def tiny(cls=BertBackbone, **kwargs):
    sizes = dict(num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16)
    return cls(vocabulary_size=20, max_sequence_length=8, **sizes, **kwargs)


@pytest.fixture
def hub(monkeypatch):
    """A hub of folders by repository; says what was asked of it."""

    class Hub:
        folders = {}
        asked = []

        def download(self, repository, name):
            self.asked.append(name)
            if repository not in self.folders:
                raise LocalEntryNotFoundError("no network")
            path = pathlib.Path(self.folders[repository], name)
            if not path.exists():
                raise EntryNotFoundError(f"404 Client Error: {name}")
            return str(path)

    hub = Hub()
    hub.folders, hub.asked = {}, []
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hub.download)
    monkeypatch.setattr(kagglehub, "model_download", hub.download)
    return hub


def test_every_published_size_has_a_source_tokenizer_and_licence():
    families = {preset.backbone for preset in NAMES.values()}
    published = {r.backbone for r in FAMILIES.values() if r.sizes}
    assert {cls.__name__ for cls in families} == published and len(NAMES) >= 61
    for name, preset in NAMES.items():
        assert name in preset.backbone.presets_table
        assert preset.license
        if preset.tokenizer == "words":  # files of the papers' own, which no hub has
            assert not preset.sources
            continue
        assert preset.tokenizer_files
        assert preset.sources or name.startswith("gpt3_")  # never published
        assert all(s.startswith(("hf://", "kaggle://")) for s in preset.sources)


def test_sources_are_those_of_keras_hub_too():
    assert NAMES["bert_base_en"].sources == (
        "hf://google-bert/bert-base-cased",
        "kaggle://keras/bert/keras/bert_base_en/3",
    )
    assert NAMES["bert_l4_h256_en_uncased"].sources == (
        "hf://google/bert_uncased_L-4_H-256_A-4",
    )
    assert NAMES["albert_extra_large_v1_en_uncased"].sources == (
        "hf://albert/albert-xlarge-v1",
    )
    assert NAMES["distil_roberta_base_en"].tokenizer == "byte_pair"
    assert not NAMES["spanbert_base_en_cased"].lowercase
    assert NAMES["spanbert_base_en_cased"].license == "CC-BY-NC-4.0"


def test_list_presets_is_a_table():
    lines = str(list_presets(SpanBertBackbone)).splitlines()
    assert lines[0].split() == "name layers width tokenizer licence source".split()
    assert "CC-BY-NC-4.0  hf://SpanBERT/spanbert-base-cased" in lines[1]
    assert len(lines) == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_name_builds_without_a_network(name, hub):
    # Smaller than published, or it would take gigabytes: the name's other
    # arguments must be ones that the class takes.
    preset = NAMES[name]
    small = {"num_layers": 1, "hidden_dim": 8, "vocabulary_size": 10}
    if issubclass(preset.backbone, ElmoBackbone):
        small |= {"cell_dim": 8, "filters": [[1, 4]]}
    else:
        small |= {"num_heads": 1, "intermediate_dim": 8}
    if "num_key_value_heads" in preset.size:
        small["num_key_value_heads"] = None
    if "cutoffs" in preset.size:
        small["cutoffs"] = [4, 8]
    base = EncoderBackbone
    if not issubclass(preset.backbone, EncoderBackbone):
        base = preset.backbone
    backbone = base.from_preset(name, load_weights=False, **small)
    assert type(backbone) is preset.backbone
    assert not hub.asked


def test_a_task_without_weights_needs_no_network(hub):
    task = MaskedLM.from_preset("bert_tiny_en_uncased", load_weights=False)
    assert task.backbone.hidden_dim == 128 and task.preprocessor is None
    assert not hub.asked


@pytest.mark.parametrize(
    "name", ["bert_base_en", "hf://someone/bert", "kaggle://a/b/c/d"]
)
@pytest.mark.parametrize("cls", [BertBackbone, MaskedLM])
def test_an_unreachable_hub(cls, name, hub):
    with pytest.raises(ConnectionError) as caught:
        cls.from_preset(name)
    message = str(caught.value)
    handles = NAMES[name].sources if name in NAMES else [name]
    for part in (*handles, "no network", "from_preset('path/to/folder')"):
        assert part in message
    assert isinstance(caught.value.__cause__, LocalEntryNotFoundError)


def test_a_real_call_without_a_network(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConnectionError, match="hf download someone/bert"):
        BertBackbone.from_preset("hf://someone/bert")


@pytest.mark.slow
@pytest.mark.parametrize(
    "handle", ["hf://someone/bert", "kaggle://keras/bert/keras/bert_base_en/3"]
)
def test_a_preset_from_a_hub(handle, hub, tmp_path):
    backbone = tiny()
    backbone.save_to_preset(str(tmp_path))
    hub.folders[handle.partition("://")[2]] = tmp_path
    loaded = BertBackbone.from_preset(handle)
    ids = {"token_ids": np.array([[1, 2, 3]])}
    keras.tree.map_structure(np.testing.assert_array_equal, backbone(ids), loaded(ids))
    assert hub.asked[0] == "config.json" and "model.weights.h5" in hub.asked
    del hub.asked[:]
    BertBackbone.from_preset(handle, load_weights=False)
    assert hub.asked == ["config.json"]


def test_a_name_takes_the_first_source_that_can_be_reached(hub, tmp_path):
    tiny().save_to_preset(str(tmp_path))
    hub.folders["keras/bert/keras/bert_base_en/3"] = tmp_path
    assert BertBackbone.from_preset("bert_base_en").hidden_dim == 8


def test_a_sharded_preset_from_a_hub(hub, tmp_path):
    tiny().save_to_preset(str(tmp_path), max_shard_size=2e-6)
    shards = {p.name for p in tmp_path.glob("model_*.weights.h5")}
    assert len(shards) > 1
    hub.folders["someone/bert"] = tmp_path
    assert BertBackbone.from_preset("hf://someone/bert").hidden_dim == 8
    assert shards < set(hub.asked)


@pytest.mark.parametrize("shard", ["../secret.h5", "/etc/passwd", "a/b.h5"])
def test_an_index_may_not_name_other_folders(shard, hub, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": shard}}))
    hub.folders["someone/bert"] = tmp_path
    with pytest.raises(ConnectionError, match="names the file"):
        locate("hf://someone/bert")
    assert shard not in hub.asked


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_a_json_file_without_end(name, hub, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / name).unlink(missing_ok=True)
    with open(tmp_path / name, "wb") as file:
        file.truncate(2**33)  # takes no space on the disk
    hub.folders["someone/bert"] = tmp_path
    with pytest.raises(ConnectionError, match="too large for a file of its kind"):
        locate("hf://someone/bert")


def test_without_weights_there(hub, tmp_path):
    tiny().save_to_preset(str(tmp_path))
    (tmp_path / "model.weights.h5").unlink()
    hub.folders["someone/bert"] = tmp_path
    with pytest.raises(ConnectionError, match="none of model.weights.h5"):
        BertBackbone.from_preset("hf://someone/bert")


def test_a_size_without_a_source_says_so(hub):
    class OwnBackbone(BertBackbone):
        presets_table = {"own_size": BertBackbone.presets_table["bert_tiny_en_uncased"]}

    try:
        preset = list_presets(OwnBackbone)["own_size"]
        assert isinstance(preset, PublishedPreset) and preset.sources == ()
        with pytest.raises(ValueError, match="load_weights=False"):
            OwnBackbone.from_preset("own_size")
        # The names of a class are its own, whoever inherits them.
        assert list_presets(BertBackbone)["bert_base_en"].backbone is BertBackbone
    finally:
        OwnBackbone.presets_table = {}


def test_a_folder_of_a_published_name_needs_a_path(tmp_path, monkeypatch, hub):
    monkeypatch.chdir(tmp_path)
    tiny().save_to_preset("bert_base_en")
    with pytest.raises(ConnectionError):
        BertBackbone.from_preset("bert_base_en")
    assert BertBackbone.from_preset("./bert_base_en").hidden_dim == 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spanbert_base_en_cased", "bert_tiny_en_uncased"])
def test_a_name_knows_its_tokenizers_case(name, hub, tmp_path):
    pytest.importorskip("safetensors")
    tiny().export_to_transformers(tmp_path)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens))
    hub.folders[NAMES[name].sources[0].removeprefix("hf://")] = tmp_path
    with pytest.warns(UserWarning, match="new: .*masked_lm_head"):
        task = MaskedLM.from_preset(name)
    lowercase = "uncased" in name
    assert task.preprocessor.tokenizer.lowercase == lowercase
    assert BertTokenizer.from_preset(name).lowercase == lowercase
    preprocessor = MaskedLMPreprocessor.from_preset(name)
    assert preprocessor.tokenizer.lowercase == lowercase
    # What SpanBERT published calls itself BERT.
    family = NAMES[name].backbone
    assert type(task.backbone) is family
    out = str(tmp_path / "out")
    result = CliRunner().invoke(app, ["convert", name, out])
    assert result.exit_code == 0, result.output
    assert type(family.from_preset(out)) is family
    assert BertTokenizer.from_preset(out).lowercase == lowercase


def test_a_name_knows_its_backbone_where_two_are_alike(hub, tmp_path):
    pytest.importorskip("safetensors")
    arguments = {"position_offset": 2, "layer_norm_epsilon": 1e-5}
    tiny(DistilBertBackbone, **arguments).export_to_transformers(tmp_path / "theirs")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["model_type"] == "roberta"
    hub.folders["distilbert/distilroberta-base"] = tmp_path / "theirs"
    out = str(tmp_path / "out")
    result = CliRunner().invoke(app, ["convert", "distil_roberta_base_en", out])
    assert result.exit_code == 0, result.output
    assert type(DistilBertBackbone.from_preset(out)) is DistilBertBackbone


def test_folders_of_sentence_transformers_come_with_their_modules(hub, tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(15))]
    preprocessor = TextEmbedderPreprocessor(BertTokenizer(words), 8)
    model = TextEmbedder(tiny(), preprocessor, pooling="last", projection_dim=3)
    model.export_to_sentence_transformers(tmp_path)
    hub.folders["me/embedder"] = tmp_path
    found = TextEmbedder.from_preset("hf://me/embedder")
    assert (found.pooling, found.projection_dim) == ("last", 3)
    assert found.preprocessor.sequence_length == 8
    for name in ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json"):
        assert name in hub.asked
    assert "2_Dense/model.safetensors" in hub.asked


def test_a_folder_whose_model_is_one_of_its_modules(hub, tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(15))]
    model = TextEmbedder(tiny(), TextEmbedderPreprocessor(BertTokenizer(words), 8))
    model.export_to_sentence_transformers(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    here = [m["path"] for m in modules if m["path"]] + ["modules.json"]
    here.append("config_sentence_transformers.json")
    (tmp_path / "0_Transformer").mkdir()
    here.append("0_Transformer")
    for path in [p for p in tmp_path.iterdir() if p.name not in here]:
        path.rename(tmp_path / "0_Transformer" / path.name)
    modules[0]["path"] = "0_Transformer"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    hub.folders["me/embedder"] = tmp_path
    found = TextEmbedder.from_preset("hf://me/embedder")
    again = TextEmbedder.from_preset(str(tmp_path))
    for each in (found, again):
        assert each.preprocessor.sequence_length == 8
        np.testing.assert_allclose(
            each.predict(["1 2"], verbose=0), model.predict(["1 2"], verbose=0), 1e-5
        )


def test_a_hub_gives_what_a_folder_has(hub, tmp_path):
    """Settings of writing and added tokens, for example."""
    pytest.importorskip("safetensors")
    backbone = GPT2Backbone(20, 1, 2, 8, 16, max_sequence_length=8)
    generation = {"num_beams": 2, "max_new_tokens": 3}
    CausalLM(backbone, generation=generation).export_to_transformers(tmp_path / "a")
    hub.folders["a/a"] = tmp_path / "a"
    assert CausalLM.from_preset("hf://a/a").generation == generation
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]
    model = MaskedLM(tiny(pooler=False), MaskedLMPreprocessor(BertTokenizer(names), 8))
    model.export_to_transformers(tmp_path / "b")
    (tmp_path / "b" / "added_tokens.json").write_text('{"<user>": 20}')
    hub.folders["b/b"] = tmp_path / "b"
    found = [BertTokenizer.from_preset(each) for each in ("hf://b/b", tmp_path / "b")]
    for tokenizer in found:
        assert np.asarray(tokenizer("<user> a")).tolist() == [20, 5]


def test_every_settings_file_is_asked_for(hub, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    hub.folders["a/a"] = tmp_path
    locate("hf://a/a", load_weights=False)
    tables = (each for each in vars(file_keys).values() if hasattr(each, "meaningless"))
    named = {each.file for each in tables if each.file.endswith((".json", ".metadata"))}
    others = {"options.json"}  # ELMo's, which no hub has
    assert named - others - {*hub.asked} == set()
