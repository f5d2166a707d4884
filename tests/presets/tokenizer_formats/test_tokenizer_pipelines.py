"""Pipelines of `tokenizer.json`: each key is used, has no meaning, or is refused."""

import copy
import json
import random

import pytest
import tensorflow as tf
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.tokenizer_formats.tokenizer_files import export_tokenizer
from keras_bertfam.presets.tokenizer_presets import load_given_tokenizer, load_tokenizer
from keras_bertfam.tokenizers import train_byte_pair
from keras_bertfam.tokenizers.offsets import tokenize_with_offsets
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from tests.presets.tokenizer_formats.test_tokenizer_sources import (
    BY_KIND,
    byte_pair,
    pieces,
    unigram,
    word_piece,
)

# Of Unicode 3.2, which all tables in play know.
LETTERS = [
    "a",
    "B",
    "cat",
    "É",
    "e\u0301",
    "ß",
    "Σ",
    "ΟΔΟΣ",
    "İ",
    "ﬁ",
    "½",
    "Ⅷ",
    "٣",
    "42",
]
LETTERS += [
    "中",
    "कि",
    "\u1112\u1161\u11ab",
    "Å",
    "_",
    "-",
    "...",
    "(",
    "„",
    "+",
    "$",
    "``",
]
LETTERS += [
    " ",
    " ",
    "  ",
    "\n",
    "\t",
    "\xa0",
    "\u3000",
    "\u200d",
    "\x07",
    "\ufffd",
    "ⓐ",
]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS += [c for t in LETTERS if t.strip() for c in t] + ["cat", "▁", "e", "é", "i", "σ"]
WORDS = [*dict.fromkeys([*WORDS, *(f"##{c}" for c in WORDS[5:])])]


def texts_of(seed, count=80):
    draw = random.Random(seed)
    return ["".join(draw.choices(LETTERS, k=draw.randrange(10))) for _ in range(count)]


def normalizer_of(draw, by_characters):
    made = {
        "form": lambda: getattr(
            normalizers, draw.choice(["NFC", "NFD", "NFKC", "NFKD"])
        )(),
        "lower": normalizers.Lowercase,
        "accents": normalizers.StripAccents,
        "replace": lambda: normalizers.Replace(
            draw.choice("a-Σ"), draw.choice(["", "b\\1"])
        ),
        "bert": lambda: normalizers.BertNormalizer(
            *(draw.random() < 0.5 for _ in range(2)),
            draw.choice([None, True, False]),
            draw.random() < 0.5,
        ),
    }
    if not by_characters:
        made["prepend"] = lambda: normalizers.Prepend("▁")
        made["strip"] = lambda: normalizers.Strip(
            draw.random() < 0.5, draw.random() < 0.5
        )
        made["words"] = lambda: normalizers.Replace("at", "e")
    return normalizers.Sequence([draw.choice([*made.values()])() for _ in range(2)])


def words_of(draw, last=()):
    made = [
        pre_tokenizers.BertPreTokenizer(),
        pre_tokenizers.Whitespace(),
        pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Punctuation(),
        pre_tokenizers.Digits(individual_digits=draw.random() < 0.5),
    ]
    return pre_tokenizers.Sequence([*draw.sample(made, draw.randrange(3)), *last])


def drawn(kind, draw, by_characters):
    """A pipeline of `tokenizers`."""
    if kind == "word_piece":
        numbers = {word: number for number, word in enumerate(WORDS)}
        made = tokenizers.Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
        made.pre_tokenizer = words_of(draw)
    else:
        documents = tf.data.Dataset.from_tensor_slices(texts_of(0))
        ours = train_byte_pair(documents, 300)
        merges = [tuple(m.split(" ")) for m in ours.merges]
        made = tokenizers.Tokenizer(models.BPE(dict(ours.vocabulary), merges))
        flags = {
            "add_prefix_space": draw.random() < 0.5,
            "use_regex": draw.random() < 0.7,
        }
        made.pre_tokenizer = words_of(draw, [pre_tokenizers.ByteLevel(**flags)])
    made.normalizer = normalizer_of(draw, by_characters)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["word_piece", "byte_pair"])
def test_pipelines_that_are_drawn(kind, seed, tmp_path):
    draw = random.Random(seed)
    for number in range(3):
        theirs = drawn(kind, draw, by_characters=number > 0)
        folder = tmp_path / str(number)
        folder.mkdir()
        theirs.save(str(folder / "tokenizer.json"))
        family = {"word_piece": "bert", "byte_pair": "roberta"}[kind]
        ours = load_given_tokenizer(folder, family)
        texts = texts_of(seed + number)
        found = tokenize(ours, tf.constant(texts)).to_list()
        content = json.loads(theirs.to_str())
        said = content["normalizer"], content["pre_tokenizer"]
        for text, row in zip(texts, found, strict=True):
            assert row == theirs.encode(text, add_special_tokens=False).ids, (
                text,
                said,
            )
        if number:
            ids, starts, ends = tokenize_with_offsets(ours, tf.constant(texts))
            assert ids.to_list() == found
            for text, *bounds in zip(
                texts, starts.to_list(), ends.to_list(), strict=True
            ):
                for start, end in zip(*bounds, strict=True):
                    piece = text.encode()[start:end].decode(errors="replace")
                    # Tokens of word pieces are of whole characters.
                    assert kind == "byte_pair" or piece.count("\ufffd") <= text.count(
                        "\ufffd"
                    )
                assert bounds[0] == sorted(bounds[0])
        export_tokenizer(ours, folder)
        written = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        encoded = written.encode_batch(texts, add_special_tokens=False)
        assert [encoding.ids for encoding in encoded] == found
        ours.save_to_preset(folder / "preset")
        again = load_tokenizer(str(folder / "preset"))
        assert tokenize(again, tf.constant(texts)).to_list() == found


def whole(kind, folder):
    """A `tokenizer.json` that is read, as a dict, and its family."""
    if kind == "sentence_piece":
        pieces("albert", folder)
        made, family = unigram(folder, []), "albert"
        (folder / "spiece.model").unlink()
    else:
        family = {"word_piece": "bert", "byte_pair": "roberta"}[kind]
        made = word_piece(True) if kind == "word_piece" else byte_pair("roberta")
    return json.loads(made.to_str()), family


def keys_of(content, path=()):
    """Paths of all keys, but for those of vocabularies and tables."""
    for key, value in content.items() if isinstance(content, dict) else ():
        if key not in ("vocab", "merges", "precompiled_charsmap", "added_tokens"):
            yield (*path, key)
            for inner in value if isinstance(value, list) else [value]:
                yield from keys_of(inner, (*path, key))


def at(content, path):
    """What is at a path; of the objects in a list, the one that has its next key."""
    for place, key in enumerate(path):
        content = content[key]
        if isinstance(content, list) and content:
            rest = path[place + 1 : place + 2]
            content = next((c for c in content if {*rest} <= {*c}), content[0])
    return content


@pytest.mark.slow
@pytest.mark.parametrize("kind", BY_KIND)
def test_no_key_is_passed_over(kind, tmp_path):
    content, family = whole(kind, tmp_path)
    path = tmp_path / "tokenizer.json"

    def read(changed):
        path.write_text(json.dumps(changed), "utf-8")
        return load_given_tokenizer(path, family)

    plain = read(content).get_config()
    refused, used = [], []
    for keys in {keys[:-1] for keys in keys_of(content)}:
        changed = copy.deepcopy(content)
        at(changed, keys)["surprise"] = 1
        if keys and keys[0] in ("truncation", "padding"):
            continue
        with pytest.raises(CheckpointError, match="surprise"):
            read(changed)
    no_meaning = {
        "version",
        "truncation",
        "padding",
        "decoder",
        "trim_offsets",
        "split",
    }
    for keys in {*keys_of(content)}:
        if keys[-1] in no_meaning or keys[0] in no_meaning:
            continue
        changed = copy.deepcopy(content)
        inside = at(changed, keys[:-1])
        if keys[-1] not in inside:  # of another object of a list
            continue
        old = inside[keys[-1]]
        inside[keys[-1]] = (not old) if isinstance(old, bool) else "surprise"
        try:
            config = read(changed).get_config()
        except CheckpointError:
            refused.append(keys)
        else:
            assert config != plain or keys[-1] == "unk_id", keys
            used.append(keys)
    assert refused and len(refused) + len(used) >= 6


@pytest.mark.parametrize(
    ("family", "template", "message"),
    [
        ("bert", "[CLS] $A [SEP]", None),
        ("bert", "$A [SEP]", "post_processor in .* must be rows of .*CLS"),
        ("roberta", "<s> $A </s>", "rows of <s> A </s> and <s> A </s> </s> B </s>"),
    ],
)
def test_rows_are_laid_out_as_the_familys(family, template, message, tmp_path):
    made = word_piece(True) if family == "bert" else byte_pair(family)
    names = [token for token in template.split() if not token.startswith("$")]
    pair = f"{template} $B:1 {names[-1]}:1"  # not RoBERTa's, which has two
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=template,
        pair=pair,
        special_tokens=[(name, made.token_to_id(name)) for name in names],
    )
    made.save(str(tmp_path / "tokenizer.json"))
    if message is None:
        assert load_given_tokenizer(tmp_path, family)
        return
    with pytest.raises(CheckpointError, match=message):
        load_given_tokenizer(tmp_path, family)


def test_merges_that_are_broken_are_named(tmp_path):
    theirs = byte_pair("roberta")
    theirs.model.save(str(tmp_path))
    (tmp_path / "vocab.json").write_text(json.dumps(theirs.get_vocab()), "utf-8")
    lines = (tmp_path / "merges.txt").read_text("utf-8").splitlines()
    (tmp_path / "merges.txt").write_text("\n".join([*lines[:3], "a"]), "utf-8")
    with pytest.raises(CheckpointError, match=r"merges.txt' .*line 4 must have two"):
        load_given_tokenizer(tmp_path, "roberta")
