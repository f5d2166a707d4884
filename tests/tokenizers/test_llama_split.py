"""Llama 3's byte-level BPE, EuroBERT's, against `tokenizers` and its own files."""

import json
import random

import pytest
import tensorflow as tf
import tokenizers as hugging_face
from tokenizers import models, pre_tokenizers, processors, trainers

from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.tokenizer_formats import tokenizer_files
from keras_bertfam.presets.tokenizer_presets import load_given_tokenizer
from keras_bertfam.tokenizers import EuroBertTokenizer, RobertaTokenizer
from keras_bertfam.tokenizers.offsets import tokenize_with_offsets
from keras_bertfam.tokenizers.steps import LLAMA_SPLIT, split_by

pytestmark = pytest.mark.any_backend

PARTS = [
    *"aB1 2\n\r\t'!s?.\u00e9\u4e5d\u0663\u017fx",
    "  ",
    "\n\n",
    "'s",
    "'RE",
    "\u00a0",
]
PARTS += ["\u3000", "\u2028", "\x85", "\v", "a\u0301", "\u00df", "\U0001f600"]
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"]
CORPUS = [
    "It's 12345 cats, they'RE on the  mat!\n\nThe mat\u2026 \u00e9t\u00e9 \u4e5d"
] * 9


def texts_of(count, seed=0):
    draw = random.Random(seed)
    return ["".join(draw.choices(PARTS, k=draw.randint(0, 14))) for _ in range(count)]


def test_texts_are_split_as_published():
    texts = texts_of(3000)
    theirs = pre_tokenizers.Split(
        hugging_face.Regex(LLAMA_SPLIT["pattern"]["Regex"]), "isolated"
    )
    words, starts = split_by(tf.constant(texts), [LLAMA_SPLIT])
    pieces = zip(texts, words.to_list(), starts.to_list(), strict=True)
    for text, found, places in pieces:
        expected = [piece for piece, _ in theirs.pre_tokenize_str(text)]
        assert [word.decode() for word in found] == expected, text
        ends = [place + len(word) for word, place in zip(found, places, strict=True)]
        assert [0, *ends][: len(places)] == places, text


def released(folder):
    """Files like those of the release, with a word that no merges make."""
    made = hugging_face.Tokenizer(models.BPE(ignore_merges=True))
    pattern = hugging_face.Regex(LLAMA_SPLIT["pattern"]["Regex"])
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(CORPUS, trainer)
    content = json.loads(made.to_str())
    vocabulary = content["model"]["vocab"]
    vocabulary["\u0120zebra"] = len(vocabulary)
    made = hugging_face.Tokenizer.from_str(json.dumps(content))
    made.add_special_tokens(SPECIAL)
    start, end = (made.token_to_id(token) for token in SPECIAL[:2])
    made.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(
                f"{SPECIAL[0]} $A {SPECIAL[1]}",
                f"{SPECIAL[0]} $A {SPECIAL[1]} $B {SPECIAL[1]}",
                [(SPECIAL[0], start), (SPECIAL[1], end)],
            ),
        ]
    )
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return made


def test_files_of_the_release(tmp_path):
    theirs = released(tmp_path / "theirs")
    ours = load_given_tokenizer(str(tmp_path / "theirs"), "eurobert")
    assert type(ours) is EuroBertTokenizer and ours.ignore_merges
    assert (ours.pad_token_id, ours.mask_token_id) == (
        theirs.token_to_id(SPECIAL[1]),
        theirs.token_to_id(SPECIAL[2]),
    )
    texts = [*texts_of(200, seed=1), *CORPUS[:1], "a zebra, zebras", "so <|mask|> x"]
    ids = [theirs.encode(text, add_special_tokens=False).ids for text in texts]
    dataset = tf.data.Dataset.from_tensors(texts).map(ours)
    assert next(iter(dataset)).to_list() == ids
    found, starts, ends = (x.to_list() for x in tokenize_with_offsets(ours, texts))
    assert found == ids
    places = zip(starts[-2], ends[-2], strict=True)
    assert "zebra" in [texts[-2][first:last] for first, last in places]
    (tmp_path / "ours").mkdir()
    tokenizer_files.export_tokenizer(ours, tmp_path / "ours")
    again = hugging_face.Tokenizer.from_file(str(tmp_path / "ours" / "tokenizer.json"))
    assert [again.encode(t, add_special_tokens=False).ids for t in texts] == ids
    rows = [each.encode("a", "b").tokens for each in (theirs, again)]
    assert rows[0] == rows[1]
    ours.save_to_preset(str(tmp_path / "preset"))
    kept = EuroBertTokenizer.from_preset(str(tmp_path / "preset"))
    assert kept(texts).to_list() == ids


def test_words_that_are_tokens_stay_whole_if_asked_for():
    tokens = ["a", "b", "c", "ab", "ac", *SPECIAL]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    for ignore, expected in ((None, [3]), (True, [3]), (False, [0, 1])):
        tokenizer = EuroBertTokenizer(vocabulary, ["a c"], ignore_merges=ignore)
        assert tokenizer(["ab", "", "bac"]).to_list() == [expected, [], [1, 4]]
        assert ("ignore_merges" in tokenizer.get_config()) == (ignore is False)
    with pytest.raises(ValueError, match="`ignore_merges` must be a bool"):
        EuroBertTokenizer(vocabulary, ["a c"], ignore_merges=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pattern": {"Regex": r"\p{N}|\s+"}}, "`pre_tokenizer` must have steps of"),
        ({"behavior": "Removed"}, "`pre_tokenizer` must have steps of"),
        ({"invert": True}, "`pre_tokenizer` must have steps of"),
    ],
)
def test_other_patterns(change, message, tmp_path):
    released(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text())
    content["pre_tokenizer"]["pretokenizers"][0] |= change
    file.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=message):
        load_given_tokenizer(str(tmp_path), "eurobert")
    with pytest.raises(ValueError, match="`normalizer` must have steps of"):
        RobertaTokenizer(None, None, normalizer=[LLAMA_SPLIT])
