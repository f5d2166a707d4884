"""DeBERTa's tokenizers: special tokens where the published ones are."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.presets.tokenizer_formats import tokenizer_files
from keras_bertfam.tokenizers import train_byte_pair, train_sentence_piece

TEXTS = ["a bat sat on the mat", "the cat, on 2 mats!", "Der Ölofen naïve"]
SPECIALS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
KINDS = {
    "deberta": (train_byte_pair, 290),
    "deberta-v2": (train_sentence_piece, 45),
}


@pytest.mark.parametrize("family", KINDS)
def test_special_tokens_and_transformers(family, tmp_path):
    train, size = KINDS[family]
    documents = tf.data.Dataset.from_tensor_slices(TEXTS * 4)
    tokenizer = train(documents, size, family=family)
    vocabulary = tokenizer.get_vocabulary()
    if isinstance(vocabulary, dict):
        vocabulary = sorted(vocabulary, key=vocabulary.get)
    assert vocabulary[:4] == SPECIALS and vocabulary[-1] == "[MASK]"
    assert tokenizer.vocabulary_size() == len(vocabulary) <= size
    assert tokenizer.mask_token_id == len(vocabulary) - 1
    assert (tokenizer.start_token_id, tokenizer.end_token_id) == (1, 2)
    rows = tokenizer([*TEXTS, "a [MASK] sat"])
    if family == "deberta-v2":
        assert tokenizer.mask_token_id in rows[3].numpy()
        # Published without it.
        own = type(tokenizer)(tokenizer.proto_in_own_order())
        np.testing.assert_array_equal(
            own(TEXTS).flat_values, tokenizer(TEXTS).flat_values
        )
        assert own.get_vocabulary() == tokenizer.get_vocabulary()
    config = tokenizer.get_config()
    assert type(tokenizer).from_config(config).get_config() == config

    transformers = pytest.importorskip("transformers")
    ids = tokenizer_files.export_tokenizer(tokenizer, tmp_path)
    assert ids["pad_token_id"] == 0
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.mask_token, theirs.cls_token) == ("[MASK]", "[CLS]")
    for text, row in zip(TEXTS, rows, strict=False):
        assert theirs(text)["input_ids"] == [1, *row.numpy(), 2], text
