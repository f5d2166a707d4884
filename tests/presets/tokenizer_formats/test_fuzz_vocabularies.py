"""Vocabularies of `transformers` with anything in them: tokenizers or named errors."""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints.source import CheckpointSource
from keras_bertfam.presets.tokenizer_formats.piece_models import PieceModel
from keras_bertfam.presets.tokenizer_formats.tokenizer_files import load_tokenizer
from keras_bertfam.tokenizers.steps import bert_step
from tests.tiny_sentence_piece import train_sentence_piece

MORE = [f"word{index}" for index in range(20)]  # which all can do without
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a", *MORE]
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "c", "ab", *MORE]
IDS = {piece: index for index, piece in enumerate(PIECES)}
SPECIAL = [{"content": piece, "special": True} for piece in ("<cls>", "<sep>", "<pad>")]
UNIGRAM = [["<unk>", 0.0], ["<cls>", 0.0], ["<sep>", 0.0], ["<pad>", 0.0]]
FAST = {
    "WordPiece": {
        "model": {
            "type": "WordPiece",
            "vocab": {word: index for index, word in enumerate(WORDS)},
        },
        "normalizer": bert_step(lowercase=True),
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    },
    "BPE": {
        "model": {
            "type": "BPE",
            "vocab": IDS,
            "merges": ["a b"],
            "unk_token": "<unk>",
        },
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    },
    "Unigram": {
        "model": {
            "type": "Unigram",
            "unk_id": 0,
            "vocab": [*UNIGRAM, ["<mask>", 0.0], *([word, -1.0] for word in MORE)],
        },
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": ""},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            ],
        },
        "added_tokens": [*SPECIAL, {"content": "<mask>", "special": True}],
    },
}
SEPARATORS = ["\n", "\r\n", "\r", " ", "\t", "\0", "\u2028", "[PAD]", "a", "##"]
BYTES = st.sampled_from([t.encode() for t in SEPARATORS]) | st.binary(max_size=3)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([*WORDS, *range(-1, 10), 1.0, 2**31, 2**63]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def whole():
    """Files of tokenizers by family and kind, each as bytes by name."""
    text = " ".join(["a b ab ba a b", *MORE])
    spiece = train_sentence_piece([text] * 9, normalization_rule_name="identity")
    files = {
        ("bert", "words"): {"vocab.txt": "\n".join(WORDS).encode()},
        ("roberta", "pairs"): {
            "vocab.json": json.dumps(IDS).encode(),
            "merges.txt": b"#version: 0.2\na b\n",
        },
        ("xlnet", "pieces"): {"spiece.model": spiece},
    }
    for family, kind in (
        ("bert", "WordPiece"),
        ("roberta", "BPE"),
        ("xlnet", "Unigram"),
    ):
        files[family, kind] = {"tokenizer.json": json.dumps(FAST[kind]).encode()}
    return files


def load(family, files, folder):
    for name, content in files.items():
        (folder / name).write_bytes(content)
    paths = {name: str(folder / name) for name in files}
    return load_tokenizer(CheckpointSource(str(folder), family, {}, {}, paths))


def nodes(value):
    """Each dict and list within a value of JSON that isn't empty."""
    if isinstance(value, dict | list) and value:
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from nodes(inner)


def damaged(draw, content):
    """Bytes with some of them changed, or JSON with a value changed or left out."""
    if content[:1] == b"{" and draw(st.booleans()):
        changed = json.loads(content)
        node = draw(st.sampled_from(list(nodes(changed))))
        keys = list(node) if isinstance(node, dict) else range(len(node))
        key = draw(st.sampled_from(keys))
        if draw(st.booleans()):
            node[key] = draw(VALUES)
        else:
            del node[key]
        return json.dumps(changed).encode()
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        count = draw(st.integers(0, 4))
        content[at : at + count] = draw(BYTES)
    return bytes(content)


def test_the_whole_files_load(whole, tmp_path):
    for (family, _), files in whole.items():
        assert load(family, files, tmp_path).vocabulary_size() > 6


def test_a_piece_with_a_null_character(whole, tmp_path):
    # tensorflow_text ends the process for one.
    proto = PieceModel()
    proto.ParseFromString(whole["xlnet", "pieces"]["spiece.model"])
    proto.pieces.add(piece="\0a", score=-1.0)
    with pytest.raises(CheckpointError, match="null character"):
        load("xlnet", {"spiece.model": proto.SerializeToString()}, tmp_path)


@pytest.mark.slow
@settings(
    max_examples=int(os.environ.get("BERTFAM_FUZZ", 120)),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_fuzzed_vocabularies_load_or_say_what_is_wrong(data, whole, tmp_path):
    family, kind = data.draw(st.sampled_from(sorted(whole)))
    files = dict(whole[family, kind])
    name = data.draw(st.sampled_from(sorted(files)))
    files[name] = damaged(data.draw, files[name])
    try:
        tokenizer = load(family, files, tmp_path)
    except CheckpointError:
        return
    ids = [i for row in tokenizer(["a b", "ab c"]) for i in map(int, row)]
    assert all(0 <= i < tokenizer.vocabulary_size() for i in ids)
