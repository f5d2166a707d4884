"""ERNIE 1.0: its count, its vocabulary of characters, its masking of Chinese."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, presets, tasks
from keras_bertfam.layers import KnowledgeMasking, Lexicon
from keras_bertfam.tokenizers import BertTokenizer

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}


def test_count_defaults_and_name():
    size = models.ErnieBackbone.presets_table["ernie_base_zh"]
    assert models.ErnieBackbone.parameter_count(**size) == 99_866_112
    backbone = models.ErnieBackbone(40, **SIZES)
    assert backbone.activation == "relu" and backbone.max_sequence_length == 513
    found = presets.list_presets(models.ErnieBackbone)["ernie_base_zh"]
    assert found.sources == ("hf://nghuyong/ernie-1.0-base-zh",)
    assert tasks.pretraining_recipe("ernie").masking["strategy"] == "knowledge"


@pytest.mark.any_backend
def test_a_vocabulary_with_numbers(tmp_path):
    tokens = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "的", "[UNK]"]
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{t}\t{n}\n" for n, t in enumerate(tokens)), "utf-8")
    tokenizer = BertTokenizer(str(path))
    assert tokenizer.get_vocabulary() == tokens
    assert list(np.ravel(tokenizer("的人"))) == [4, 5]
    path.write_text("[PAD]\t0\n[CLS]\t2\n", "utf-8")
    with pytest.raises(ValueError, match="number of each line.*in line 2"):
        BertTokenizer(str(path))


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.any_backend
def test_entities_of_chinese_characters(data_dir):
    path = data_dir / "tokenizers/ernie/ernie1_zh_vocab.txt"
    tokenizer = BertTokenizer(str(path), lowercase=True)
    assert tokenizer.vocabulary_size() == 17_964
    text = "哈尔滨是黑龙江的省会，国际冰雪文化名城。"
    mark = Lexicon(["哈尔滨", "黑龙江", "冰雪文化"])
    texts = tf.data.Dataset.from_tensor_slices(["\n".join([text] * 300)]).map(mark)
    preprocessor = tasks.MaskedLMPreprocessor(
        tokenizer, 44, 0.2, strategy=KnowledgeMasking("entity")
    )
    (batch,) = preprocessor.dataset(texts, 100).take(1).as_numpy_iterator()
    x, ids, weights = batch
    vocabulary = np.array(tokenizer.get_vocabulary())
    seen = set()
    for row in range(100):
        kept = weights[row] > 0
        at = x["mask_positions"][row][kept]
        runs = np.split(vocabulary[ids[row][kept]], np.flatnonzero(np.diff(at) > 1) + 1)
        # Not what the ends of a row cut.
        seen |= {"".join(run) for run in runs if "".join(run) not in ("哈尔", "尔滨")}
    whole = {run for run in seen if "尔" in run}
    assert whole and all("哈尔滨" in run for run in whole)
