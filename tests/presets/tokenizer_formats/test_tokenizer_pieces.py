"""SentencePiece models as a `tokenizer.json`, whose ids are the very ones."""

import io
import json
import random
import unicodedata

import pytest
import sentencepiece
import tensorflow as tf
import tokenizers as hugging_face

from keras_bertfam import tokenizers
from keras_bertfam.presets.tokenizer_formats import charsmap, piece_pipelines
from keras_bertfam.presets.tokenizer_formats.tokenizer_files import export_tokenizer
from keras_bertfam.presets.tokenizer_presets import load_given_tokenizer
from keras_bertfam.tokenizers import train_byte_pair, train_sentence_piece
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from keras_bertfam.tokenizers.text_tokenizer import add_tokens

transformers = pytest.importorskip("transformers")
WORDS = """the river (blue) 1980, 3.14 "so-called" – £5 €7 <extra_id_0> <extra_id_19>
    <eop> <eod> Ελλάς ΟΔΟΣ ΑΣ' İstanbul ﬁne ½ ～ don't ``q'' 한국어 日本語 नमस्ते ไทย ...
    e\u0301 a\u0302\u0301 a\u0323\u0302 e\u0301\u0323 ℀\u0327 \u2581 \u200d <s> </s>"""
WORDS = WORDS.split()
# Of all scripts, in a version of Unicode that all libraries know.
POOL = [
    chr(k)
    for k in range(1, 0x1F000)
    if unicodedata.ucd_3_2_0.category(chr(k)) not in ("Cn", "Co", "Cs")
]
MARKS = [c for c in POOL if unicodedata.combining(c)] + ["\u0302\u0301"] * 99
JAMO = [chr(k) for k in (*range(0x1100, 0x1200), *range(0xAC00, 0xAC60))]
FAMILIES = ["albert", "xlnet", "xlm-roberta", "camembert", "t5"]


def drawn(seed, count):
    """Words, characters of all scripts and marks, with and without spaces."""
    draw = random.Random(seed)

    def part():
        odd = [draw.choice(draw.choice([POOL, MARKS, JAMO])) for _ in range(4)]
        words = draw.choices(WORDS, k=2)
        return draw.choice([words[0], "".join(odd), "".join(words)])

    def gap():
        return draw.choice(["", " ", "  ", "\n", "\t", "\u3000"])

    return [
        "".join(part() + gap() for _ in range(draw.randrange(8))) for _ in range(count)
    ]


def trained(family, kind, **kwargs):
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=12)) for _ in range(200)]
    documents = tf.data.Dataset.from_tensor_slices(texts)
    given = {"sentinels": 20} if family == "t5" else {}
    if family in ("albert", "xlnet"):
        given["split_number_commas"] = False
    return train_sentence_piece(documents, 400, kind, family, **given, **kwargs)


def check(tokenizer, folder, texts):
    """Compare ids with those of `transformers` for the exported files."""
    export_tokenizer(tokenizer, folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    if not getattr(
        tokenizer, "special_tokens_in_strings", False
    ):  # they are found there
        special = [t.content for t in theirs.added_tokens_decoder.values() if t.special]
        texts = [text for text in texts if not any(s in text for s in special)]
    ours = tokenize(tokenizer, tf.constant(texts)).to_list()
    found = theirs(texts, add_special_tokens=False)["input_ids"]
    wrong = [
        case for case in zip(texts, ours, found, strict=True) if case[1] != case[2]
    ]
    assert not wrong, wrong[:3]
    return theirs, texts, ours


@pytest.mark.parametrize(("family", "kind"), [("xlnet", "unigram"), ("t5", "bpe")])
def test_ids(family, kind, seed, tmp_path):
    check(trained(family, kind), tmp_path, drawn(seed, 300))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("family", FAMILIES)
def test_ids_of_each_family(family, kind, seed, tmp_path):
    tokenizer = trained(family, kind)
    theirs, texts, _ = check(tokenizer, tmp_path, drawn(seed, 1000))
    texts = [text.replace("1980,", "") for text in texts]  # read with split commas
    expected = tokenize(tokenizer, tf.constant(texts)).to_list()
    theirs.save_pretrained(tmp_path / "json")  # without the model's own file
    folders = [tmp_path]
    if kind == "bpe":
        with pytest.raises(ValueError, match="`family` must be one of"):
            load_given_tokenizer(tmp_path / "json", family)
    else:
        folders.append(tmp_path / "json")
    for folder in folders:
        again = load_given_tokenizer(folder, family)
        assert type(again) is type(tokenizer)
        assert tokenize(again, tf.constant(texts)).to_list() == expected


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("family", ["albert", "xlnet"])
def test_ids_of_published_models(family, lowercase, data_dir, seed, tmp_path):
    cls = {"albert": tokenizers.AlbertTokenizer, "xlnet": tokenizers.XLNetTokenizer}
    path = data_dir / "tokenizers" / family / "spiece.model"
    tokenizer = cls[family](
        str(path),
        lowercase=lowercase,
        keep_accents=not lowercase,
        split_number_commas=False,
    )
    check(tokenizer, tmp_path, drawn(seed, 2000))


@pytest.mark.parametrize(
    ("family", "row", "segments"),
    [
        ("albert", "[CLS] ▁a [SEP] ▁b [SEP]", [0, 0, 0, 1, 1]),
        ("xlnet", "▁a <sep> ▁b <sep> <cls>", [0, 0, 1, 1, 2]),
    ],
)
def test_rows_of_two_texts(family, row, segments, tmp_path):
    texts = tf.data.Dataset.from_tensor_slices(["a b a b"] * 9)
    export_tokenizer(train_sentence_piece(texts, 30, family=family), tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    made = theirs("a", "b")
    assert theirs.convert_ids_to_tokens(made["input_ids"]) == row.split()
    assert made["token_type_ids"] == segments
    assert theirs.padding_side == ("left" if family == "xlnet" else "right")


def test_commas_behind_numbers_are_named(tmp_path):
    texts = tf.data.Dataset.from_tensor_slices(["in 1980, and in 1980, too"] * 9)
    tokenizer = train_sentence_piece(texts, 40, family="albert")
    with pytest.warns(UserWarning, match=r"split_number_commas=True\), as in '.*,'"):
        export_tokenizer(tokenizer, tmp_path)
    assert (tmp_path / "tokenizer.json").exists()


def model_with(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a rose is a rose"] * 9),
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        **{"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, **options},
    )
    return model.getvalue()


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ({"vocab_size": 300, "byte_fallback": True}, "unknown characters as bytes"),
        ({"vocab_size": 20, "model_type": "char"}, "other than unigram and BPE"),
        ({"treat_whitespace_as_suffix": True}, "spaces at the ends of pieces"),
        ({"user_defined_symbols": ["½"]}, "symbols that its own clean-up changes"),
    ],
)
def test_what_cannot_be_said_is_named(options, phrase, tmp_path):
    tokenizer = tokenizers.T5Tokenizer(model_with(**{"vocab_size": 30, **options}))
    with pytest.warns(UserWarning, match=f"No `tokenizer.json` was .*{phrase}"):
        export_tokenizer(tokenizer, tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    assert (tmp_path / "spiece.model").exists()
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "T5Tokenizer"


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["identity", "nfkc", "nfkc_cf"])
def test_other_tables(rule, seed, tmp_path):
    """One that changes capitals is named; the others are as ours."""
    proto = model_with(vocab_size=20, normalization_rule_name=rule)
    model = piece_pipelines.parse(proto)
    named = piece_pipelines.not_expressible(model)
    if rule != "identity":
        assert named == ["a table of characters other than NFKC's"]
        return
    assert named == []
    tokenizer = tokenizers.T5Tokenizer(proto)
    check(tokenizer, tmp_path, drawn(seed, 300))


def test_added_tokens(tmp_path):
    texts = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"] * 9)
    tokenizer = train_sentence_piece(texts, 40, family="xlnet", added_tokens=["<new>"])
    check(tokenizer, tmp_path, ["a <new> cat", "a<new>cat", "<new>", " <new> <new>"])
    token = {"content": "New", "normalized": True}
    tokenizer = add_tokens(tokenizer, [token])
    with pytest.warns(UserWarning, match="looked for after a clean-up"):
        export_tokenizer(tokenizer, tmp_path)


def test_an_added_token_that_merges_make_as_well(tmp_path):
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"] * 2)
    learned = train_byte_pair(documents, 300, family="modernbert")
    tokenizer = add_tokens(learned, ["at", "é日", "b"])
    export_tokenizer(tokenizer, tmp_path)
    theirs = hugging_face.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "a cat bat é日 sat"
    found = theirs.encode(text, add_special_tokens=False).ids
    assert found == tokenizer([text]).to_list()[0]


def test_damaged_tables():
    for table in (b"", b"\x08\0\0\0abc", b"\x05\0\0\0" + bytes(9), bytes(12)):
        with pytest.raises(ValueError, match="The charsmap"):
            charsmap.rules(table)
