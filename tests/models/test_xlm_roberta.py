"""XLM-R, XL too, and CamemBERT: counts, and checkpoints of `transformers`."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, tasks
from keras_bertfam.presets.tokenizer_formats.tokenizer_files import export_tokenizer
from keras_bertfam.tokenizers import train_sentence_piece
from tests.from_transformers import max_difference, randomize

FAMILIES = {
    "xlm-roberta": (models.XLMRobertaBackbone, "XLMRoberta"),
    "xlm-roberta-xl": (models.XLMRobertaXLBackbone, "XLMRobertaXL"),
    "camembert": (models.CamembertBackbone, "Camembert"),
}
# Those of `transformers` without its pooler and its one type of segment.
COUNTS = {
    "xlm_roberta_base_multi": 277_453_056 - 768,
    "xlm_roberta_large_multi": 558_840_832 - 1024,
    "xlm_roberta_xl_multi": 3_482_485_760 - 2560 * 2561 - 2560,
    "xlm_roberta_xxl_multi": 10_712_735_744 - 4096 * 4097 - 4096,
    "camembert_base_fr": 110_621_952 - 768 * 769 - 768,
    "camembert_large_fr": 336_661_504 - 1024 * 1025 - 1024,
}


@pytest.mark.any_backend
@pytest.mark.parametrize("family", FAMILIES)
def test_counts(family):
    cls, _ = FAMILIES[family]
    for name, size in cls.presets_table.items():
        assert cls.parameter_count(**size) == COUNTS[name]


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    """A masked language model of `transformers`, and a tokenizer beside it."""
    transformers = pytest.importorskip("transformers")
    cls, title = FAMILIES[request.param]
    path = tmp_path_factory.mktemp(title)
    texts = ["the cat sat on the mat", "le chat dort à l'été"] * 8
    tokenizer = train_sentence_piece(
        tf.data.Dataset.from_tensor_slices(texts),
        60,
        family=request.param.removesuffix("-xl"),
    )
    size = tokenizer.vocabulary_size()
    config = getattr(transformers, f"{title}Config")(
        vocab_size=size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=26,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=1,
        bos_token_id=tokenizer.start_token_id,
        eos_token_id=tokenizer.end_token_id,
    )
    theirs = randomize(getattr(transformers, f"{title}ForMaskedLM")(config), 0.1)
    theirs.save_pretrained(path)
    export_tokenizer(tokenizer, path)
    return request.param, path, theirs


def test_logits_are_those_of_transformers(folder):
    torch = pytest.importorskip("torch")
    family, path, theirs = folder
    task = tasks.MaskedLM.from_preset(str(path))
    assert type(task.backbone) is FAMILIES[family][0]
    ids = (
        np.random.default_rng(0)
        .integers(7, theirs.config.vocab_size, (3, 12))
        .astype("int32")
    )
    mask = np.arange(12) < np.array([[12], [7], [1]])
    ids = np.where(mask, ids, 1)
    given = {
        "input_ids": torch.tensor(ids).long(),
        "attention_mask": torch.tensor(mask),
    }
    with torch.no_grad():
        expected = theirs(**given).logits
    every = np.tile(np.arange(12, dtype="int32"), (3, 1))
    rows = {"token_ids": ids, "padding_mask": mask, "mask_positions": every}
    assert max_difference(task(rows), expected, mask) < 1e-4


@pytest.mark.slow
def test_round_trip(folder, tmp_path):
    _, path, _ = folder
    task = tasks.MaskedLM.from_preset(str(path))
    [[found]] = task.fill_mask(["the cat <mask> on"], top_k=3)
    task.export_to_transformers(str(tmp_path / "theirs"))
    config, before = (
        json.loads((each / "config.json").read_text())
        for each in (tmp_path / "theirs", path)
    )
    same = ("model_type", "architectures", "bos_token_id", "eos_token_id")
    assert [config[key] for key in same] == [before[key] for key in same]
    again = tasks.MaskedLM.from_preset(str(tmp_path / "theirs"))
    [[answer]] = again.fill_mask(["the cat <mask> on"], top_k=3)
    assert [token for token, _ in answer] == [token for token, _ in found]
    for one, other in zip(again.weights, task.weights, strict=True):
        assert keras.ops.all(keras.ops.equal(one, other))
