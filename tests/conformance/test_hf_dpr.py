"""DPR's encoders beside those of `transformers`, both ways."""

import contextlib
import json

import numpy as np
import pytest
from keras import ops

from keras_bertfam import models, tasks
from keras_bertfam.tokenizers import BertTokenizer
from tests.from_transformers import max_difference, randomize
from tests.tiny_masked_lm import SPECIALS, WORDS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CLASSES = {
    "question_encoder": "DPRQuestionEncoder",
    "ctx_encoder": "DPRContextEncoder",
    "reader": "DPRReader",
}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 24, "max_position_embeddings": 16}
IDS = np.random.default_rng(0).integers(5, 20, (3, 8)).astype("int32")
MASK = np.arange(8) < np.array([[8], [5], [1]])
ROWS = {"token_ids": IDS, "padding_mask": MASK}
THEIRS = {"input_ids": torch.tensor(IDS).long(), "attention_mask": torch.tensor(MASK)}


def theirs(name, seed=0, **settings):
    config = transformers.DPRConfig(
        vocab_size=len(SPECIALS) + len(WORDS), **SIZES, **settings
    )
    return randomize(getattr(transformers, CLASSES[name])(config), 0.2, seed)


@pytest.mark.parametrize("name", CLASSES)
def test_states_are_those_of_transformers(name, tmp_path):
    model = theirs(name)
    model.save_pretrained(tmp_path)
    told = pytest.warns(UserWarning, match="left out: span_predictor.qa_classifier")
    with told if name == "reader" else contextlib.nullcontext():
        ours = models.Backbone.from_preset(str(tmp_path))
    assert type(ours) is models.BertBackbone and ours.pooler is None
    inner = model.span_predictor.encoder if name == "reader" else getattr(model, name)
    with torch.no_grad():
        expected = inner(**THEIRS)[0]
    assert max_difference(ours(ROWS)["sequence_output"], expected, MASK) < 1e-5


def test_towers_are_read_and_written(tmp_path):
    towers = {n: theirs(n, seed) for seed, n in enumerate([*CLASSES][:2])}
    for name, model in towers.items():
        model.save_pretrained(tmp_path / name)
    tokenizer = BertTokenizer([*SPECIALS, *WORDS], lowercase=True)
    task = tasks.DualEncoder(
        models.Backbone.from_preset(str(tmp_path / "question_encoder")),
        tasks.DualEncoderPreprocessor(tokenizer, 8, 8),
        models.Backbone.from_preset(str(tmp_path / "ctx_encoder")),
        projection_dim=None,
    )
    sides = dict(zip(("query", "passage"), towers, strict=True))
    rows = {f"{side}_{name}": x for side in sides for name, x in ROWS.items()}
    found = task(rows)
    for side, name in sides.items():
        with torch.no_grad():
            expected = towers[name](**THEIRS).pooler_output
        assert max_difference(found[side], expected) < 1e-5
    task.export_to_transformers(str(tmp_path / "written"))
    for side, name in sides.items():
        folder = tmp_path / "written" / name
        cls = getattr(transformers, CLASSES[name])
        again, said = cls.from_pretrained(folder, output_loading_info=True)
        assert not said["missing_keys"] and not said["unexpected_keys"]
        with torch.no_grad():
            expected = again.eval()(**THEIRS).pooler_output
        assert max_difference(found[side], expected) < 1e-6
        text = transformers.AutoTokenizer.from_pretrained(folder)("the cat sat")
        ours = ops.convert_to_numpy(tokenizer("the cat sat"))
        assert text["input_ids"][1:-1] == ours.tolist()


def test_what_is_no_dpr(tmp_path):
    theirs("question_encoder", projection_dim=4).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="must have no projection.*projection_dim=4"):
        models.Backbone.from_preset(str(tmp_path))
    path = tmp_path / "config.json"
    config = {**json.loads(path.read_text()), "projection_dim": 0, "new_key": 1}
    path.write_text(json.dumps(config))
    backbone = models.BertBackbone(
        len(SPECIALS) + len(WORDS),
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
    )
    for settings in (
        {"projection_dim": 4},
        {"projection_dim": None, "pooling": "mean"},
    ):
        with pytest.raises(ValueError, match="DPR of `transformers` can hold"):
            tasks.DualEncoder(backbone, **settings).export_to_transformers(
                str(tmp_path / "written")
            )
    assert not (tmp_path / "written").exists()
