"""Gemma's tokenizer beside `tokenizers` and `transformers`, on texts of any script."""

import json
import random
import time

import keras
import pytest
import tensorflow as tf
import tokenizers as hugging_face
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.tokenizer_formats import tokenizer_files
from keras_bertfam.presets.tokenizer_presets import load_given_tokenizer
from keras_bertfam.tokenizers import GemmaTokenizer, train_byte_pair
from keras_bertfam.tokenizers.gemma import BYTES
from keras_bertfam.tokenizers.offsets import tokenize_with_offsets
from tests.tokenizers.test_byte_level import draw

pytestmark = pytest.mark.any_backend

SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
# What is found in texts: line ends, and what only looks like spaces.
ADDED = ["\n", "\n\n", "\t", "\u2581\u2581", "<table>"]
KNOWN = ["", " ", "   ", "a", " a", "a  b", "a \n b\n\n\nc\t", "1234 \u0663\u0664"]
KNOWN += ["<mask>", "the <mask> cat", "a<mask>", "<bos>a<eos>", "x\u2581\u2581y"]
KNOWN += [
    "\U0001f600\U0001f468\u200d\U0001f469",
    "\u00e9 e\u0301",
    "\u3042\u3044 \u4e2d",
]
KNOWN += [
    "\U00010348",
    "<0x41>",
    "a\u00a0b\u3000c",
    "<table>x",
    "\ufffd",
    "\u0915\u093f",
]
CORPUS = ["the cat  sat on the mat, a caf\u00e9 \u043c\u0438\u0440 \u4e2d\u6587"] * 9


def learned(crossing=False):
    """Merges of the corpus, and one across a space if asked for."""
    documents = tf.data.Dataset.from_tensor_slices(CORPUS)
    trained = train_byte_pair(documents, 330, family="mmbert")
    vocabulary, merges = dict(trained.vocabulary), [*trained.merges]
    more = [*ADDED, "\u2581\u2581\u2581"]
    pairs = ["\u2581 \u2581", "\u2581 \u2581\u2581", "\n \n"]
    if crossing:
        more, pairs = [*more, "t\u2581"], ["t \u2581", *pairs]
    for token in more:
        vocabulary.setdefault(token, len(vocabulary))
    return vocabulary, merges[:4] + pairs + merges[4:]


def pipeline(vocabulary, merges, added=ADDED):
    """As in the files of Gemma 2, with the end that mmBERT's rows have."""
    model = models.BPE(
        vocabulary,
        [tuple(merge.split(" ")) for merge in merges],
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    made = hugging_face.Tokenizer(model)
    made.normalizer = normalizers.Replace(" ", "\u2581")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    made.post_processor = processors.TemplateProcessing(
        "<bos> $A <eos>", "<bos> $A <eos> $B <eos>", [("<bos>", 2), ("<eos>", 1)]
    )
    made.add_special_tokens(SPECIAL)
    made.add_tokens([hugging_face.AddedToken(t, normalized=False) for t in added])
    return made


def ids(tokenizer, texts):
    dataset = tf.data.Dataset.from_tensors(texts).map(tokenizer)
    return next(iter(dataset)).to_list()


def their_ids(tokenizer, texts):
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


@pytest.mark.parametrize("crossing", [False, True])
def test_files_of_the_release(crossing, seed, tmp_path):
    theirs = pipeline(*learned(crossing))
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = load_given_tokenizer(str(tmp_path), "mmbert")
    assert type(ours) is GemmaTokenizer and ours._by_words != crossing
    special = ("pad", "end", "start", "unk", "mask")
    assert [getattr(ours, f"{name}_token_id") for name in special] == [0, 1, 2, 3, 4]
    texts = KNOWN + draw(random.Random(seed), 200)
    expected = their_ids(theirs, texts)
    assert ids(ours, texts) == expected
    read = [theirs.decode(each, skip_special_tokens=False) for each in expected]
    texts_again = ours.detokenize(tf.ragged.constant(expected)).numpy()
    assert [text.decode() for text in texts_again] == read
    found, starts, ends = (x.to_list() for x in tokenize_with_offsets(ours, texts))
    assert found == expected
    for text, first, last in zip(texts, starts, ends, strict=True):
        places = zip(first, last, strict=True)
        covered = sorted({k for begin, end in places for k in range(begin, end)})
        covered = bytes(text.encode()[place] for place in covered).decode()
        assert "".join(covered.split()) == "".join(text.split())
    (tmp_path / "ours").mkdir()
    tokenizer_files.export_tokenizer(ours, tmp_path / "ours")
    again = hugging_face.Tokenizer.from_file(str(tmp_path / "ours" / "tokenizer.json"))
    assert their_ids(again, texts) == expected
    assert again.encode("a", "b").ids == theirs.encode("a", "b").ids
    ours.save_to_preset(str(tmp_path / "preset"))
    kept = GemmaTokenizer.from_preset(str(tmp_path / "preset"))
    assert ids(kept, texts) == expected


def test_as_transformers_has_it(tmp_path):
    transformers = pytest.importorskip("transformers")
    vocabulary, merges = learned()
    pairs = [tuple(merge.split(" ")) for merge in merges]
    ends = {"add_bos_token": True, "add_eos_token": True}
    theirs = transformers.GemmaTokenizer(vocabulary, pairs, **ends)
    theirs.save_pretrained(tmp_path)
    ours = load_given_tokenizer(str(tmp_path))
    texts = [*KNOWN, *CORPUS[:1]]
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    assert type(ours) is GemmaTokenizer and ids(ours, texts) == expected
    (tmp_path / "ours").mkdir()
    tokenizer_files.export_tokenizer(ours, tmp_path / "ours")
    again = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "ours"))
    assert again(texts, add_special_tokens=False)["input_ids"] == expected
    assert (again.mask_token_id, again.cls_token_id, again.sep_token_id) == (4, 2, 1)
    assert again("a")["input_ids"] == theirs("a")["input_ids"]


def test_learned():
    vocabulary, merges = learned()
    tokens = sorted(vocabulary, key=vocabulary.get)
    assert tokens[:261] == [*SPECIAL, *BYTES]
    tokenizer = train_byte_pair({"cat": 9, "cats": 3, "mir": 2}, 276, family="mmbert")
    assert "\u2581cat" in tokenizer.vocabulary
    assert tokenizer(["\u00e9"]).to_list() == [[5 + 0xC3, 5 + 0xA9]]
    single = tokenizer("cat \u00e9")
    assert tokenizer.detokenize(single).numpy().decode() == "cat \u00e9"
    # Characters have half of the room at most.
    many = "".join(map(chr, range(0x4E00, 0x4E40)))
    documents = tf.data.Dataset.from_tensor_slices([f"{many} the the the"] * 3)
    few = train_byte_pair(documents, 281, family="mmbert")
    assert sum(len(token) == 1 for token in few.vocabulary) == 10


def test_learned_without_spaces():
    documents = tf.data.Dataset.from_tensor_slices(["\u4e2d\u6587\u4e2d\u6587"] * 3)
    tokenizer = train_byte_pair(documents, 270, family="mmbert")
    assert [*tokenizer.vocabulary][261:264] == ["\u2581", "\u4e2d", "\u6587"]
    space, known = 261, tokenizer.vocabulary["\u4e2d\u6587"]
    assert tokenizer(["\u4e2d\u6587 a"]).to_list() == [[known, space, 5 + ord("a")]]


def test_characters_of_counted_words():
    """Rare ones are left out, and don't join what is beside them."""
    counts = {"ab": 9, "axb": 8, "cc": 7, "yz": 2}
    tokenizer = train_byte_pair(counts, 269, family="mmbert")
    tokens = [*tokenizer.vocabulary][261:]
    # Four of eight are characters; a and b join where they are neighbours.
    assert tokens[:4] == ["a", "b", "c", "\u2581"]
    assert tokenizer.merges[:2] == ["\u2581 a", "\u2581a b"]
    assert not {"x", "y", "z"} & {*"".join(tokens)}


def test_merges_of_a_path(tmp_path):
    vocabulary, merges = learned()
    tokenizer = GemmaTokenizer(vocabulary, merges)
    tokenizer.save_assets(str(tmp_path))
    for path in (tmp_path / "merges.txt", str(tmp_path / "merges.txt")):
        again = GemmaTokenizer(vocabulary, path)
        assert again.merges == merges
    again.load_assets(str(tmp_path))
    assert (again.merges, again.vocabulary) == (merges, vocabulary)
    (tmp_path / "merges.txt").write_text("\u2581 t\n", encoding="utf-8")
    with pytest.raises(ValueError, match="escapes for what isn't ASCII"):
        GemmaTokenizer(vocabulary, path)
    config = {"vocabulary": vocabulary, "merges": path}
    config = {"class_name": "keras_bertfam>GemmaTokenizer", "config": config}
    with pytest.raises(TypeError, match="`merges` must be a list in what is loaded"):
        keras.saving.deserialize_keras_object(
            {**config, "registered_name": "keras_bertfam>GemmaTokenizer"}
        )


def runs(generator, letters, count, length):
    """Texts without spaces, in which few letters come again and again."""
    sizes = (generator.randint(1, length) for _ in range(count))
    return ["".join(generator.choices(letters, k=size)) for size in sizes]


@pytest.mark.parametrize("in_order", [True, False])
def test_merges_of_runs(in_order, seed):
    generator = random.Random(seed)
    documents = tf.data.Dataset.from_tensor_slices(runs(generator, "aab", 60, 40))
    trained = train_byte_pair(documents, 300, family="mmbert")
    merges = [*trained.merges]
    if not in_order:
        generator.shuffle(merges)
    ours = GemmaTokenizer(dict(trained.vocabulary), merges)
    assert ours.merges_in_order == in_order
    theirs = pipeline({**trained.vocabulary}, merges, [])
    texts = runs(generator, "aaab", 100, 30) + ["a" * n for n in range(70)]
    assert ids(ours, texts) == their_ids(theirs, texts)


def test_long_texts_without_spaces(seed):
    """They take few steps, and aren't remembered."""
    generator = random.Random(seed)
    letters = [chr(0x4E00 + number) for number in range(10)]
    documents = tf.data.Dataset.from_tensor_slices(runs(generator, letters, 60, 200))
    trained = train_byte_pair(documents, 300, family="mmbert")
    ours = GemmaTokenizer(dict(trained.vocabulary), trained.merges)
    texts = ["".join(generator.choices(letters, k=20_000)), "".join(letters), "a" * 65]
    expected = their_ids(pipeline({**trained.vocabulary}, trained.merges, []), texts)
    known = len(ours.cache.id2value.export()[0])  # the special tokens
    start = time.monotonic()
    assert ours(texts).to_list() == expected
    # One merge at a step takes half a minute.
    assert time.monotonic() - start < 10
    assert len(ours.cache.id2value.export()[0]) == known + 1


@pytest.mark.parametrize(
    ("where", "change", "message"),
    [
        ("model", {"byte_fallback": False}, "The byte_fallback of the model"),
        ("model", {"unk_token": None}, "The unk_token of the model"),
        ("model", {"ignore_merges": True}, "The ignore_merges of the model"),
        ("normalizer", {"content": "_"}, "The normalizer .* \u2581 for each space"),
        ("pre_tokenizer", {"behavior": "Isolated"}, "The pre_tokenizer .* none, as Ge"),
        (
            "post_processor",
            {"single": []},
            "The post_processor .* rows of <bos> A <eos>",
        ),
    ],
)
def test_other_pipelines(where, change, message, tmp_path):
    pipeline(*learned()).save(str(tmp_path / "tokenizer.json"))
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content[where] |= change
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=message):
        load_given_tokenizer(str(tmp_path), "mmbert")


def test_vocabularies_that_cant_be():
    vocabulary, merges = learned()
    vocabulary["<no byte>"] = vocabulary.pop("<0x0A>")
    with pytest.raises(ValueError, match="the 256 bytes.* without <0x0A>"):
        GemmaTokenizer(vocabulary, merges)
    with pytest.raises(ValueError, match="`add_prefix_space` must be `False`"):
        train_byte_pair({"cats": 9}, 300, True, "mmbert")
