"""mmBERT's folders against `transformers`: ModernBERT's, with Gemma's tokenizer."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, tasks, tokenizers
from keras_bertfam.layers.data.pairs.segments import get_layout
from tests.compiled import compiled
from tests.from_transformers import max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXTS = ["the cat sat on the mat", "a caf\u00e9 \u043c\u0438\u0440"]
SIZES = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2}
ROPE = {"rope_theta": 160_000.0, "rope_type": "default"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mmbert")
    documents = tf.data.Dataset.from_tensor_slices(TEXTS * 5)
    learned = tokenizers.train_byte_pair(documents, 300, family="mmbert")
    pairs = [tuple(merge.split(" ")) for merge in learned.merges]
    ends = {"add_bos_token": True, "add_eos_token": True}
    tokenizer = transformers.GemmaTokenizer(dict(learned.vocabulary), pairs, **ends)
    tokenizer.save_pretrained(folder)
    config = transformers.ModernBertConfig(
        vocab_size=len(learned.vocabulary),
        intermediate_size=12,
        max_position_embeddings=64,
        local_attention=4,
        rope_parameters={"full_attention": ROPE, "sliding_attention": ROPE},
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=1,
        cls_token_id=2,
        sep_token_id=1,
        **SIZES,
    )
    randomize(transformers.ModernBertForMaskedLM(config), 0.3).save_pretrained(folder)
    return folder


def test_states_logits_and_rows(folder, tmp_path):
    ours = tasks.MaskedLM.from_preset(str(folder))
    with pytest.warns(UserWarning, match="and left out: decoder.bias, head"):
        backbone = models.MmBertBackbone.from_preset(str(folder))
    assert type(ours.backbone) is models.ModernBertBackbone
    assert type(backbone) is models.MmBertBackbone
    assert backbone.rotary_base == (160_000.0, 160_000.0)
    tokenizer = ours.preprocessor.tokenizer
    assert type(tokenizer) is tokenizers.GemmaTokenizer
    assert get_layout(None, tokenizer).name == "mmbert"
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    rows = transformers.AutoTokenizer.from_pretrained(folder)(
        TEXTS, padding=True, padding_side="right", return_tensors="pt"
    )
    mask = rows["attention_mask"].numpy().astype(bool)
    for row, (text, there) in enumerate(zip(TEXTS, mask, strict=True)):
        own = [2, *np.array(tokenizer(text)).tolist(), 1]
        assert rows["input_ids"][row][torch.tensor(there)].tolist() == own
    x = {"token_ids": rows["input_ids"].numpy().astype("int32"), "padding_mask": mask}
    with torch.no_grad():
        expected = theirs(**rows, output_hidden_states=True)
    states = compiled(backbone)(x)["sequence_output"]
    assert max_difference(states, expected.hidden_states[-1], mask) < 1e-5
    assert max_difference(compiled(ours)(x), expected.logits, mask) < 1e-4
    model = tasks.MaskedLM(backbone, ours.preprocessor)
    model.export_to_transformers(tmp_path)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (
        again(TEXTS)["input_ids"][0] == rows["input_ids"][0][: mask[0].sum()].tolist()
    )
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    ids = (config.pad_token_id, config.bos_token_id, config.eos_token_id)
    assert (config.model_type, *ids) == ("modernbert", 0, 2, 1)
