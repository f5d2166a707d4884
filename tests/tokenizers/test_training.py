import functools
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import (
    AlbertTokenizer,
    XLNetTokenizer,
    train_byte_pair,
    train_sentence_piece,
    train_word_piece,
)
from keras_bertfam.models import BertBackbone
from keras_bertfam.presets.tokenizer_formats.tokenizer_files import export_tokenizer
from keras_bertfam.presets.tokenizer_presets import load_given_tokenizer
from keras_bertfam.tasks import (
    MaskedLM,
    MaskedLMPreprocessor,
    PermutationLMPreprocessor,
    ReplacedTokenDetectionPreprocessor,
    SpanBoundaryLMPreprocessor,
)
from keras_bertfam.tokenizers.pipeline_ops import as_graph_layer, tokenize
from keras_bertfam.tokenizers.training import BYTE_PAIR, WORD_PIECE
from keras_bertfam.tokenizers.word_piece import SPECIAL_TOKENS
from tests.checkout import ROOT

LATIN = [
    "A café was open on the quay, and the sailors sat there till 1,980 stars shone.",
    "The cat sat by the old sailor. The sailor's café was open!\nHe sat there.",
]
GREEK_AND_CYRILLIC = [
    "Кошка сидела на ковре. Собака сидела на дворе, и кошка мяукала!",
    "Η γάτα κάθεται στο χαλί. Ο σκύλος κάθεται στην αυλή.",
]
JAPANESE_AND_CHINESE = [
    "吾輩は猫である。名前はまだ無い。どこで生れたか頓と見当がつかぬ。",
    "學而時習之，不亦說乎。有朋自遠方來，不亦樂乎。",
]
TEXTS = [*LATIN, *GREEK_AND_CYRILLIC, *JAPANESE_AND_CHINESE]
KINDS = {
    "word piece": lambda data, size=220: train_word_piece(data, size),
    "byte pair": lambda data, size=400: train_byte_pair(data, size),
    "unigram": lambda data, size=200: train_sentence_piece(data, size),
    "pieces by bpe": lambda data, size=200: train_sentence_piece(
        data, size, "bpe", "xlnet", sentinels=3, keep_accents=True
    ),
}


ALL_KINDS = {
    **KINDS,
    "letters": lambda data, size=200: train_byte_pair(data, size, family="gpt"),
}


def dataset(texts):
    return tf.data.Dataset.from_tensor_slices(texts)


def documents():
    return dataset(TEXTS).repeat(20)


@pytest.fixture(scope="module")
def tokenizers():
    return {kind: train(documents()) for kind, train in ALL_KINDS.items()}


@functools.cache
def graph(tokenizer):
    return tf.function(
        lambda texts: tokenize(as_graph_layer(tokenizer), texts),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )


def encode(tokenizer, texts):
    return graph(tokenizer)(tf.constant(texts))


def files(tokenizer, folder):
    """What is saved of a vocabulary."""
    folder.mkdir(exist_ok=True)
    tokenizer.save_assets(str(folder))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_training():
    documents = dataset(["Un café là", "un chat là"] * 20)
    tokenizer = train_word_piece(documents, 60)
    assert tokenizer.get_vocabulary()[:5] == [*SPECIAL_TOKENS]
    assert 1 not in tokenizer("UN CAFE là").numpy()


def test_vocabularies_are_learnt_from_the_same_characters():
    documents = dataset(["Fuß ½…\u00a0SOFT\u00adLY"] * 20)
    tokenizer = train_word_piece(documents, 60)
    ids = tokenizer(["fuß ½… softly"]).to_list()[0]
    assert 1 not in ids
    assert ids == tokenizer(["Fuß ½…\u00a0SOFT\u00adLY"]).to_list()[0]
    assert {"½", "…", "##ß"} <= {*tokenizer.get_vocabulary()}
    assert "\u00a0" not in "".join(tokenizer.get_vocabulary())


def test_special_tokens_of_byte_pairs(tokenizers):
    tokenizer = tokenizers["byte pair"]
    tokens = [*tokenizer.get_vocabulary()]
    assert tokens[:4] == ["<s>", "<pad>", "</s>", "<unk>"]
    assert tokens[-1] == "<mask>" and len(tokens) == 400
    assert [*tokenizer.vocabulary.values()] == [*range(400)]
    assert tokenizer.mask_token_id == 399 and tokenizer.pad_token_id == 1
    # Even where the text is full of them.
    tokenizer = train_byte_pair(dataset(["<mask>1 <unk>2<s>"] * 9), 300)
    tokens = [*tokenizer.get_vocabulary()]
    assert tokens[:4] == ["<s>", "<pad>", "</s>", "<unk>"] and tokens[-1] == "<mask>"
    assert len({*tokens}) == len(tokens)


def test_special_pieces_have_the_published_ids(tokenizers):
    albert, xlnet = tokenizers["unigram"], tokenizers["pieces by bpe"]
    assert isinstance(albert, AlbertTokenizer) and isinstance(xlnet, XLNetTokenizer)
    pieces = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *'()"-.–£€']
    assert albert.get_vocabulary()[:13] == pieces
    pieces = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>"]
    pieces += ["<eop>", *'.()"-–£€']
    pieces += [f"<extra_id_{number}>" for number in range(3)]
    assert xlnet.get_vocabulary()[:20] == pieces
    sentinel = xlnet.token_to_id("<extra_id_1>")
    assert encode(xlnet, ["The<extra_id_1> sat"]).to_list()[0].count(sentinel) == 1
    assert xlnet.vocabulary_size() == 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_character_is_unknown_and_texts_decode(kind, tokenizers):
    tokenizer = tokenizers[kind]
    ids = encode(tokenizer, TEXTS)
    tokens = {*tokenizer.get_vocabulary()}
    unknown = tokenizer.token_to_id("[UNK]" if "[UNK]" in tokens else "<unk>")
    assert unknown not in ids.flat_values.numpy()
    decoded = [str(text) for text in tokenizer.detokenize(ids)]
    if kind == "byte pair":
        assert decoded == TEXTS
    elif kind == "pieces by bpe":  # NFKC of the model
        assert decoded == [text.replace("\n", " ").replace("，", ",") for text in TEXTS]
    else:
        assert decoded[0].startswith("a cafe was open on the quay")
        assert decoded[2].startswith("кошка сидела на ковре")
        assert decoded[5].replace(" ", "").startswith("學而時習之")
    if kind in ("byte pair", "pieces by bpe"):  # something was learnt of each script
        rows = ids.row_lengths().numpy()
        assert (rows < [len(text.encode()) / 1.5 for text in TEXTS]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_learns_what_it_sees_at_run_time(kind, tmp_path):
    """A piece of a cut document, lines and forms of a character change nothing."""
    texts = ["The ``Cafe\u0301'' sat there.", "He sat\u00a0there."]
    # Byte pairs have the space for the line's end before the piece.
    before = "\n" if kind == "byte pair" else ""
    whole = [before + texts[0], texts[1]] * 20
    first = files(KINDS[kind](dataset(whole), 280), tmp_path / "a")
    cut = ["\0" + texts[0], texts[1]] * 20
    assert files(KINDS[kind](dataset(cut), 280), tmp_path / "b") == first
    if kind == "unigram":
        forms = ['THE "cafe" sat there.', "he sat there."] * 20
        assert files(KINDS[kind](dataset(forms), 280), tmp_path / "c") == first


def test_long_lines_without_spaces_are_learnt():
    document = "".join(JAPANESE_AND_CHINESE) * 400  # 24,000 characters
    for train in (KINDS["unigram"], KINDS["pieces by bpe"]):
        tokenizer = train(dataset([document]), 400)
        assert max(map(len, tokenizer.get_vocabulary())) >= 6
        assert encode(tokenizer, [document]).row_lengths()[0] < len(document) // 2


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_same_text_same_bytes(kind, tokenizers, tmp_path):
    expected = files(tokenizers[kind], tmp_path / "expected")
    for number in range(2):
        again = ALL_KINDS[kind](documents())
        assert files(again, tmp_path / f"{number}") == expected


CODE = """
import pathlib, sys
from tests.tokenizers.test_training import ALL_KINDS, documents, files
for kind, train in ALL_KINDS.items():
    files(train(documents()), pathlib.Path(sys.argv[1]) / kind)
"""


@pytest.mark.slow
def test_same_bytes_in_another_process(tokenizers, tmp_path):
    """With one thread of the trainer, and other hashes of Python."""
    subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1", "RAYON_NUM_THREADS": "1"},
    )
    for kind, tokenizer in tokenizers.items():
        saved = tmp_path / kind
        found = {path.name: path.read_bytes() for path in saved.iterdir()}
        assert found == files(tokenizer, tmp_path / f"expected {kind}")


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        ("pieces by bpe", SpanBoundaryLMPreprocessor),
        slow("unigram", PermutationLMPreprocessor),
        slow("byte pair", ReplacedTokenDetectionPreprocessor),
    ],
)
def test_goes_into_preprocessors(kind, cls, tokenizers):
    tokenizer = tokenizers[kind]
    preprocessor = cls(tokenizer, sequence_length=24)
    batch = next(iter(preprocessor.dataset(documents(), 4)))
    x = batch[0] if isinstance(batch, tuple) else batch
    ids = x["token_ids"].numpy()
    assert ids.shape == (4, 24)
    assert 0 <= ids.min() and ids.max() < tokenizer.vocabulary_size()
    assert tokenizer.mask_token_id in ids or cls is PermutationLMPreprocessor


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["word piece", slow("byte pair"), "unigram", "pieces by bpe"]
)
def test_saved_with_a_preset(kind, tokenizers, tmp_path):
    tokenizer = tokenizers[kind]
    preprocessor = MaskedLMPreprocessor(tokenizer, sequence_length=16)
    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 4, "intermediate_dim": 4}
    backbone = BertBackbone(tokenizer.vocabulary_size(), **sizes)
    MaskedLM(backbone, preprocessor).save_to_preset(tmp_path / "preset")
    again = MaskedLMPreprocessor.from_preset(tmp_path / "preset").tokenizer
    assert type(again) is type(tokenizer)
    assert again.get_config() == tokenizer.get_config()
    expected = files(tokenizer, tmp_path / "expected")
    assert files(again, tmp_path / "again") == expected
    np.testing.assert_array_equal(
        encode(again, TEXTS).flat_values, encode(tokenizer, TEXTS).flat_values
    )


def test_text_files(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(LATIN * 20), encoding="utf-8")
    for train in KINDS.values():
        tokens = {*train([tmp_path / "a.txt"], 300).get_vocabulary()}
        assert tokens & {"sat", "Ġsat", "▁sat", "▁sa"}


@pytest.mark.parametrize("kind", KINDS)
def test_documents_without_a_word(kind):
    for texts in (["", " \n\t"], ["\0"]):
        with pytest.raises(ValueError, match="`documents` must .* one word.*none."):
            KINDS[kind](dataset(texts))
    with pytest.raises(ValueError, match="`documents` must .* one word"):
        KINDS[kind](documents().take(0))
    if kind == "byte pair":
        with pytest.raises(ValueError, match="`documents` must have .* pair .* twice"):
            KINDS[kind](dataset(["ab", "c"]))


@pytest.mark.parametrize("kind", KINDS)
def test_vocabulary_sizes(kind):
    least = {"byte pair": 261, "word piece": 5, "unigram": 13}.get(kind, 20)
    for wrong in (least, -1, True, 300.0, "300", None, 10**9):
        own = f"above {least}, .* special .*" if wrong in (least, None, 10**9) else ""
        message = f"`vocabulary_size` must be .*{own}Received: {wrong!r}"
        with pytest.raises(ValueError, match=message):
            KINDS[kind](documents(), wrong)
    # There are fewer tokens if the text has no more.
    few = dataset(["a cat sat on a mat"] * 20)
    assert least < KINDS[kind](few, 10_000).vocabulary_size() < 300


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_arguments_of_sentence_piece(model_type):
    with pytest.raises(ValueError, match="`vocabulary_size` .* at least 1[0-9][0-9]"):
        train_sentence_piece(documents(), 60, model_type)
    for name, wrong in {
        "family": "gpt2",
        "sentinels": -1,
        "character_coverage": 0.5,
    }.items():
        with pytest.raises(ValueError, match=f"`{name}` must be .*Received: {wrong!r}"):
            train_sentence_piece(documents(), 200, model_type, **{name: wrong})
    with pytest.raises(ValueError, match="`model_type` .*Received: 'word'"):
        train_sentence_piece(documents(), 200, "word")
    with pytest.raises(ValueError, match="`vocabulary_size`.* above 213, "):
        train_sentence_piece(documents(), 200, model_type, sentinels=200)


def test_prefix_space():
    for prefix, first in ((True, "ĠThe"), (False, "The")):
        tokenizer = train_byte_pair(dataset(["The"] * 9), 300, add_prefix_space=prefix)
        assert first in tokenizer.get_vocabulary()
        assert tokenizer.add_prefix_space is prefix


LOWER = [{"type": "Lowercase"}]


def ids_of(tokenizer, texts):
    return encode(tokenizer, texts).to_list()


def test_documents_are_prepared_as_the_tokenizer_prepares_texts():
    books = dataset(["Die Bücher sind schön, die Bücher sind's"] * 2)
    settings = {"normalizer": LOWER, "pre_tokenizer": [{"type": "WhitespaceSplit"}]}
    tokenizer = train_word_piece(books, 60, **settings)
    assert {"bücher", "schön,", "sind's"} <= {*tokenizer.get_vocabulary()}
    assert ids_of(tokenizer, ["DIE BÜCHER"]) == ids_of(tokenizer, ["die bücher"])
    assert len(ids_of(tokenizer, ["die bücher sind schön,"])[0]) == 4


@pytest.mark.parametrize("family", ["roberta", "gpt2", "modernbert", "deberta"])
def test_byte_pairs_are_learnt_from_what_is_merged(family):
    digits = [{"type": "Digits", "individual_digits": True}]
    texts = dataset(["HELLO 12345 cafe\u0301", "HELLO 12345 cafe\u0301"])
    tokenizer = train_byte_pair(
        texts, 290, family=family, normalizer=LOWER, pre_tokenizer=digits
    )
    assert not re.search(r"\d|[A-Z]", " ".join(tokenizer.merges).replace("Ã", ""))
    assert len(ids_of(tokenizer, ["hello"])[0]) == 1
    # ModernBERT composes letters and accents.
    joined = "Ã ©" in tokenizer.merges
    assert joined == (family == "modernbert")


EXPORTED = {
    "roberta": {"add_prefix_space": True},
    "bart": {},
    "gpt2": {"add_prefix_space": True},
    "deberta": {"ignore_merges": True},
    "modernbert": {"pre_tokenizer": [{"type": "Digits", "individual_digits": True}]},
    "bert": {"max_input_chars_per_word": 4, "special_tokens_in_strings": True},
    "mpnet": {"special_tokens_in_strings": True},
    "albert": {"split_number_commas": False},
    "xlnet": {"split_number_commas": False},
}


@pytest.mark.parametrize("family", EXPORTED)
def test_settings_go_into_exported_files_and_back(family, tmp_path):
    """`transformers` and this library read what was written."""
    texts = ["In 1980, a cat sat", "the cat sat on 1980, mats", "abcdefg abcdefg"] * 3
    settings = EXPORTED[family]
    if family in WORD_PIECE:
        made = train_word_piece(dataset(texts), 80, family=family, **settings)
    elif family in BYTE_PAIR:
        made = train_byte_pair(dataset(texts), 320, family=family, **settings)
    else:
        made = train_sentence_piece(dataset(texts), 40, family=family, **settings)
    export_tokenizer(made, tmp_path)
    mask = getattr(made, "mask_token", None)
    asked = [*texts[:3], "in 1980, abcdefgh"]
    if mask and family in (*WORD_PIECE, *BYTE_PAIR):
        asked += [f"a {mask} sat", f"{mask} cat", f"a{mask}."]
    expected = ids_of(made, asked)
    again = load_given_tokenizer(tmp_path, family)
    assert ids_of(again, asked) == expected
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(asked, add_special_tokens=False)["input_ids"] == expected
    if family == "bert":  # the second text has segments of its own
        assert sum(theirs("a cat", "sat")["token_type_ids"]) == len(made("sat")) + 1


def test_a_path_and_texts_in_place_of_paths(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a cat\n" * 9)
    for given in (str(path), path, [path]):
        assert train_word_piece(given, 12, min_frequency=1).vocabulary_size() > 8
    with pytest.raises(FileNotFoundError, match="'a cat'. Give texts by .*slices"):
        train_word_piece(["a cat", "a dog"], 12)
