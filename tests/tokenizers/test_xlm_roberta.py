"""XLM-R's and CamemBERT's tokenizers beside SentencePiece and `transformers`."""

import json
import random

import pytest
import sentencepiece
import tensorflow as tf

from keras_bertfam.presets.tokenizer_formats.tokenizer_files import export_tokenizer
from keras_bertfam.presets.tokenizer_presets import load_given_tokenizer
from keras_bertfam.tokenizers import train_sentence_piece
from keras_bertfam.tokenizers.pipeline_ops import tokenize

transformers = pytest.importorskip("transformers")

TEXTS = ["the cat sat on the mat", "le chat dort à l'été", "你好,世界 Ünïcode\u3000x"]
PARTS = ["a", "the", "cat", " ", "  ", "\n", "é", "e\u0301", "中", "x", ".", ",", "Z"]
PARTS += ["\u3000", "<mask>", "</s>", "<unk>", "<pad>"]
# The class of `transformers`, what is added to the model's ids, and special ids.
KINDS = {
    "xlm-roberta": ("XLMRobertaTokenizer", 1, (0, 1, 2, 3)),
    "camembert": ("CamembertTokenizer", 4, (5, 1, 6, 3)),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind):
    documents = tf.data.Dataset.from_tensor_slices(TEXTS * 8)
    return train_sentence_piece(documents, 60, family=kind)


def drawn(seed, parts):
    draw = random.Random(seed)
    return ["".join(draw.choices(parts, k=draw.randrange(10))) for _ in range(100)]


def test_special_ids(kind, tokenizer):
    names = ("start", "pad", "end", "unk")
    found = tuple(getattr(tokenizer, f"{name}_token_id") for name in names)
    assert found == KINDS[kind][2]
    assert tokenizer.mask_token_id == tokenizer.vocabulary_size() - 1
    assert tokenizer.vocabulary_size() <= 60
    assert tokenizer.detokenize(tokenizer("the cat <mask> sat")) == "the cat sat"


def test_ids_are_those_of_the_model_moved(kind, tokenizer, seed):
    model = sentencepiece.SentencePieceProcessor(
        model_proto=tokenizer.proto_in_own_order()
    )
    assert [model.IdToPiece(number) for number in range(3)] == ["<unk>", "<s>", "</s>"]
    texts = drawn(seed, [part for part in PARTS if "<" not in part])
    for text, row in zip(texts, tokenize(tokenizer, tf.constant(texts)), strict=True):
        expected = [
            number + KINDS[kind][1] if number else 3 for number in model.Encode(text)
        ]
        assert row.numpy().tolist() == expected, text


def test_files_of_transformers(kind, tokenizer, seed, tmp_path):
    texts = drawn(seed, PARTS)
    rows = tokenize(tokenizer, tf.constant(texts)).to_list()
    export_tokenizer(tokenizer, tmp_path)
    theirs = getattr(transformers, KINDS[kind][0]).from_pretrained(tmp_path)
    assert theirs(texts, add_special_tokens=False)["input_ids"] == rows
    theirs.save_pretrained(tmp_path / "json")  # without the model's own file
    for folder in (tmp_path, tmp_path / "json"):
        again = load_given_tokenizer(folder, kind)
        assert type(again) is type(tokenizer)
        assert again.get_vocabulary() == tokenizer.get_vocabulary()
        assert tokenize(again, tf.constant(texts)).to_list() == rows


def test_a_preset(tokenizer, tmp_path):
    tokenizer.save_to_preset(tmp_path)
    again = type(tokenizer).from_preset(tmp_path)
    assert again.get_vocabulary() == tokenizer.get_vocabulary()
    assert (
        again("the <mask>").numpy().tolist() == tokenizer("the <mask>").numpy().tolist()
    )


def test_pieces_in_another_order(kind, tokenizer, tmp_path):
    export_tokenizer(tokenizer, tmp_path)
    theirs = getattr(transformers, KINDS[kind][0]).from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path / "json")
    path = tmp_path / "json" / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    pieces = content["model"]["vocab"]
    pieces.append(pieces.pop(1))
    content["model"]["unk_id"] -= 1
    content["added_tokens"] = []
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(ValueError, match="must be in the order that"):
        load_given_tokenizer(path.parent, kind)


def test_a_clean_up_that_it_has_not(kind, tokenizer, tmp_path):
    export_tokenizer(tokenizer, tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = {**json.loads(path.read_text()), "do_lower_case": True}
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="must keep case and accents, as a"):
        load_given_tokenizer(tmp_path, kind)
