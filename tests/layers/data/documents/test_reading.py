import functools
import importlib
import itertools
import math
import warnings

import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tokenizers
from keras_bertfam.layers import (
    AlbertTokenizer,
    BertTokenizer,
    ElectraSegments,
    PackSentences,
    PairSegments,
    XLNetTokenizer,
    extend_vocabulary,
    train_byte_pair,
    train_word_piece,
)
from keras_bertfam.layers.data.documents.reading import (
    read_documents,
    share_of_documents,
    shuffle_documents,
    split_sentences,
    tokenize_sentences,
)
from keras_bertfam.tasks import (
    MaskedLMPreprocessor,
    MaskedLMSentencePairPreprocessor,
    PermutationLMPreprocessor,
)
from keras_bertfam.text_files import reading
from keras_bertfam.text_files.reading import CONTINUES
from keras_bertfam.tokenizers.counting import count_tokens
from keras_bertfam.tokenizers.pipeline_ops import as_graph_layer
from tests.tiny_masked_lm import SPECIALS, WORDS
from tests.tiny_sentence_piece import train_sentence_piece

TOKENIZER = BertTokenizer([*SPECIALS, *WORDS, "##s"])


def read(*args, **kwargs):
    return [d.numpy().decode() for d in read_documents(*args, **kwargs)]


def test_files(tmp_path):
    (tmp_path / "b.txt").write_bytes(b"last\n")
    (tmp_path / "a.txt").write_bytes(
        b"\n\none\r\ntwo\r\n\r\n \n\ngood \xc3\xa9\nx\n\nno end of line"
    )
    (tmp_path / "c.txt").write_bytes(b"")
    expected = ["one\ntwo", "good é\nx", "no end of line", "last"]
    assert read(str(tmp_path / "*.txt")) == expected


def test_long_documents_are_cut_at_a_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"line {i:04}" for i in range(100)))
    pieces = read([path], max_bytes=200)
    assert len(pieces) > 3 and max(map(len, pieces)) < 300
    first, *others = pieces
    assert all(piece[0] == CONTINUES for piece in others)
    assert "\n".join([first, *(piece[1:] for piece in others)]) == path.read_text()


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("max_bytes", [1, 3, 99])
def test_which_pieces_go_on(tmp_path, monkeypatch, chunk, max_bytes):
    monkeypatch.setattr(reading, "_CHUNK", chunk)
    lines = ["\n\naaaa\n\nbbbb\nbbb\nb\n\n\ncccc", "dddd\n\nd\n\n", "ee"]
    for name, text in zip("abc", lines, strict=True):
        (tmp_path / f"{name}.txt").write_text(text)
    for one_per_file in (False, True):
        found = read(
            str(tmp_path / "*.txt"), max_bytes=max_bytes, one_per_file=one_per_file
        )
        groups = []
        for piece in found:
            if piece[0] == CONTINUES:
                groups[-1] += piece[1:]
            else:
                groups.append(piece)
        whole = [group.replace("\n", "") for group in groups]
        if one_per_file:
            assert whole == ["aaaabbbbbbbbcccc", "ddddd", "ee"]
        else:
            assert whole == ["aaaa", "bbbbbbbb", "cccc", "dddd", "d", "ee"]
        assert (len(found) > len(whole)) == (max_bytes < 99)


def test_a_file_is_a_document(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n\n\n three\n")
    (tmp_path / "b.txt").write_text("\n\n")
    (tmp_path / "c.txt").write_text("four")
    files = str(tmp_path / "*.txt")
    assert read(files, one_per_file=True) == ["one\ntwo\nthree", "four"]
    assert read([files], one_per_file=True) == ["one\ntwo\nthree", "four"]
    assert read(files) == ["one", "two", "three", "four"]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 1.0])
def test_a_share_of_whole_documents(share):
    pieces = [f"{mark}{n}" for n in range(100) for mark in ("", "\0", "\0")]
    documents = tf.data.Dataset.from_tensor_slices(pieces)
    found = [*share_of_documents(documents, share).as_numpy_iterator()]
    texts = [piece.decode() for piece in found]
    kept = [n for n in range(100) if math.ceil((n + 1) * share) > math.ceil(n * share)]
    assert texts == [p for p in pieces if int(p.strip("\0")) in kept]
    assert kept[0] == 0 and len(kept) == 100 * share
    assert {b - a for a, b in itertools.pairwise(kept)} <= {
        int(1 / share),
        -int(-1 // share),
    }


def test_pieces_are_shuffled_as_one_document():
    texts = ["a", "b1", "\0b2", "\0b3", "c", "", "d1", "\0d2", "e"]
    documents = tf.data.Dataset.from_tensor_slices(texts)
    orders = {
        tuple(
            text.decode()
            for text in shuffle_documents(
                documents, 4, tf.constant([seed, 1], tf.int64)
            ).as_numpy_iterator()
        )
        for seed in (0, 1, 2, 0)
    }
    assert len(orders) == 3
    for order in orders:
        assert sorted(order) == sorted(texts)
        assert "b1,\0b2,\0b3" in ",".join(order) and "d1,\0d2" in ",".join(order)


def test_dataset_and_errors(tmp_path):
    strings = tf.data.Dataset.from_tensor_slices([b"a", b"\xff"])
    assert read(strings) == ["a", "\ufffd"]
    with pytest.raises(ValueError, match="scalar strings.*int64"):
        read_documents(tf.data.Dataset.range(3))
    with pytest.raises(FileNotFoundError, match="nothing"):
        read_documents(str(tmp_path / "nothing*.txt"))
    # Texts where paths belong: the error names one of them, not all.
    with pytest.raises(FileNotFoundError, match="`documents`.* 9 not .* 'a text'. Giv"):
        train_word_piece(["a text"] * 9, 40)


BUILDERS = {
    "doc": lambda n: PackSentences(TOKENIZER, n, cross_documents=False),
    "segments": lambda n: PairSegments(TOKENIZER, n, 2, 3),
    "ELECTRA": lambda n: ElectraSegments(TOKENIZER, n, 2, 3),
    "full": lambda n: PackSentences(TOKENIZER, n),
    "sentences": lambda n: PairSegments(TOKENIZER, n, 2, 3, pairing="sentences"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDERS)
def test_one_warning_of_documents_shorter_than_rows(name):
    texts = ["a cat sat", *["a dog ran on the mat"] * 2, *["the hat " * 20] * 2]
    documents = tf.data.Dataset.from_tensor_slices(texts)
    for length, is_short in ((8, True), (6, False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows = documents.repeat(200).apply(BUILDERS[name](length))
            for _ in range(2):
                assert next(iter(rows))
        caught = [str(w.message) for w in caught if "median" in str(w.message)]
        assert len(caught) == (is_short and name not in ("full", "sentences"))
        assert all("documents has 6 tokens, less than a row of 8" in w for w in caught)


USES = {
    "masked": lambda data: MaskedLMPreprocessor(TOKENIZER, 16).dataset(data, 4),
    "pairs": lambda data: MaskedLMSentencePairPreprocessor(TOKENIZER, 16).dataset(
        data, 4
    ),
    "permuted": lambda data: PermutationLMPreprocessor(TOKENIZER, 16).dataset(data, 4),
    "counts": lambda data: count_tokens(TOKENIZER, data),
    "more words": lambda data: extend_vocabulary(TOKENIZER, data, 1),
}
OF_PATHS = {
    "vocabulary": lambda data: train_word_piece(data, 40),
    "byte pairs": lambda data: train_byte_pair(data, 300),
    "pieces": lambda data: tokenizers.train_sentence_piece(data, 40),
}


@pytest.mark.parametrize("use", [*USES, *OF_PATHS])
def test_documents_are_single_strings(use):
    documents = tf.data.Dataset.from_tensor_slices(["a b"] * 8)
    labelled = tf.data.Dataset.zip(documents, tf.data.Dataset.range(8))
    for wrong, received in (
        (documents.batch(4), r"shape=\(None,\)"),
        (labelled, "tf.int64"),
        *([("corpus/*.txt", "str")] if use in USES else []),
    ):
        message = f"`documents` must be a .*scalar strings.*Received: .*{received}"
        with pytest.raises(ValueError, match=message):
            {**USES, **OF_PATHS}[use](wrong)


def test_sentences():
    text = ["One here. Two here!\nThree", "", "  "]
    out = split_sentences(tf.constant(text)).to_list()
    assert [[s.strip() for s in d] for d in out] == [
        [b"One here.", b"Two here!", b"Three"], [], [],
    ]  # fmt: skip
    lines = split_sentences(tf.constant(text), break_lines=False).to_list()
    assert lines == [[b"One here. Two here!", b"Three"], [], []]


@pytest.mark.parametrize(
    "text, sentences",
    [
        ("He left. “Why?” Nobody knew!", ["He left.", "“Why?”", "Nobody knew!"]),
        ("At 3.5 m. Then (it fell.) 9 more", ["At 3.5 m. Then (it fell.)", "9 more"]),
        ("Mr. Poe met J. R. Ray in the U.S. Army. So.", None),
        ("See www.x.org. e.g. this...  Fine", ["See www.x.org. e.g. this...", "Fine"]),
        ("这是。一个！测试", ["这是。", "一个！", "测试"]),
        ("St.\nIves . The end .", ["St.", "Ives .", "The end ."]),
    ],
)
def test_where_sentences_end(text, sentences):
    sentences = sentences or ["Mr. Poe met J. R. Ray in the U.S. Army.", "So."]
    (out,) = split_sentences(tf.constant([text])).to_list()
    assert [s.decode() for s in out] == sentences


@pytest.mark.slow
def test_documents_are_split_alike_alone_and_among_others():
    pieces = "A a é 1 . ! 。 ” ( \n \t \x00 \x01 \x02 Mr. \xff \ufffd".split(" ")
    rng = np.random.default_rng(0)
    drawn = [rng.choice([*pieces, " "], rng.integers(0, 9)) for _ in range(400)]
    texts = ["".join(x).encode("latin-1" if i % 2 else "utf-8", "ignore")
             for i, x in enumerate(drawn)]  # fmt: skip
    for break_lines in (True, False):
        split = functools.partial(split_sentences, break_lines=break_lines)
        alone = [split(tf.constant([text])).to_list()[0] for text in texts]
        assert split(tf.constant(texts)).to_list() == alone
        assert split(tf.constant([], tf.string)).to_list() == []
    assert split_sentences(tf.constant([". A", "b.", "B"])).to_list() == [
        [b". A"], [b"b."], [b"B"]
    ]  # fmt: skip


def test_a_long_line_without_end(tmp_path):
    line = "long " * 200_000  # 1 MB
    path = tmp_path / "a.txt"
    path.write_text(f"first\n{line}\nafter\n\nnext\n{line}")
    # Cut at the end of the line that makes the document too long.
    whole = line.strip()
    assert read([path]) == [f"first\n{whole}\nafter", f"next\n{whole}"]
    small = read([path], max_bytes=1000)
    assert "".join("".join(small).replace("\0", "").split()) == "".join(
        path.read_text().split()
    )


@pytest.fixture
def tiny_tfds():
    """A TFDS dataset whose examples are made on the fly."""
    tfds = pytest.importorskip("tensorflow_datasets")

    class TinyDocuments(tfds.core.GeneratorBasedBuilder):
        """Some documents."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {"text": tfds.features.Text(), "label": tf.int32}
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            raise AssertionError("nothing is to be downloaded")

        def _generate_examples(self):
            raise AssertionError("nothing is to be generated")

    def as_dataset(builder, split, **kwargs):
        texts = {"train": [b"one\ntwo", b"\xff"], "test": [b"three"]}[split]
        return tf.data.Dataset.from_tensor_slices(
            {"text": texts, "label": [0] * len(texts)}
        )

    with tfds.testing.mock_data(as_dataset_fn=as_dataset):
        yield "tfds:tiny_documents"


def test_tfds(tiny_tfds):
    assert read(tiny_tfds) == ["one\ntwo", "\ufffd"]
    assert read(tiny_tfds, split="test") == ["three"]
    with pytest.raises(ValueError, match=r"`feature`.*\['label', 'text'\].*'body'"):
        read(tiny_tfds, feature="body")
    with pytest.raises(ValueError, match="scalar strings.*int32"):
        read(tiny_tfds, feature="label")


def test_shards(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"{name}1\n\n{name}2\n")
    pattern = str(tmp_path / "*.txt")
    parts = [read(pattern, num_shards=2, shard_index=i) for i in range(2)]
    assert parts == [["a1", "a2", "c1", "c2"], ["b1", "b2"]]
    strings = tf.data.Dataset.from_tensor_slices(["a", "b", "c"])
    assert read(strings, num_shards=2, shard_index=1) == ["b"]
    (tmp_path / "long").write_text("a one\na two\na 3\n\nb one\nb two\n\nc one\n")
    pieces = read_documents(str(tmp_path / "long"), max_bytes=3)
    parts = [read(pieces, num_shards=2, shard_index=i) for i in range(2)]
    assert parts == [["a one", "\0a two", "\0a 3", "c one"], ["b one", "\0b two"]]
    with pytest.raises(ValueError, match="`num_shards` must be at most.*3.*shards=4"):
        read(pattern, num_shards=4, shard_index=3)
    for index in (-1, 2):
        with pytest.raises(ValueError, match=f"`shard_index` must .*{index}"):
            read(pattern, num_shards=2, shard_index=index)


def byte_pair_tokenizer():
    """RoBERTa's kind, of single bytes and `ĠThe`."""
    code = importlib.import_module(keras_hub.tokenizers.BytePairTokenizer.__module__)
    symbols = [str(symbol) for symbol in code.bytes_to_unicode()[1]]
    parts = ["ĠT", "ĠTh", "ĠThe"]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *symbols, *parts]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = ["Ġ T", "ĠT h", "ĠTh e"]
    return keras_hub.tokenizers.RobertaTokenizer(vocabulary, merges)


DOCUMENTS = [
    "The sun ran on. The dog sat down! 1 more…",
    "A first line\nthe second. The third\n\n\tthe fourth",
    "一二。三四！五？」六. The dog",
    "",
    "One.",
]


def check_decoded(tokenizer, tokens, document, texts):
    """Sentences, one after the other, decode to what they were, but for white space."""
    for number, text in enumerate(text for text in texts if text):
        rows = tf.ragged.boolean_mask(tokens, tf.equal(document, number))
        packed = str(tokenizer.detokenize(rows.flat_values))
        assert " ".join(packed.split()) == " ".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("cls", [XLNetTokenizer, AlbertTokenizer])
def test_sentence_piece_puts_a_space_before_each_sentence(cls):
    # Even after "。", where the text has none: every text of theirs begins with one.
    texts = [text.replace("…", "!") for text in DOCUMENTS if "。" not in text]
    special = AlbertTokenizer.special_token_names.values()
    model = train_sentence_piece(texts[:2] * 20, {*special} - {"<pad>"}, vocab_size=60)
    tokenizer = cls(model, lowercase=False)
    encode = tf.function(lambda texts: tokenize_sentences(tokenizer, texts))
    tokens, document = encode(tf.constant(texts[:2]))
    check_decoded(tokenizer, tokens, document, texts[:2])
    assert {tokenizer.id_to_token(int(row[0]))[0] for row in tokens} == {"▁"}


@pytest.mark.slow
def test_spaces_between_sentences_stay_where_tokens_carry_them():
    tokenizer = as_graph_layer(byte_pair_tokenizer())
    encode = tf.function(lambda texts: tokenize_sentences(tokenizer, texts))
    tokens, document = encode(tf.constant(DOCUMENTS))
    first = [tokenizer.id_to_token(int(row[0])) for row in tokens[:2]]
    assert first == ["T", "ĠThe"]
    check_decoded(tokenizer, tokens, document, DOCUMENTS)
    pieces, _ = encode(tf.constant(["The dog", "\0The dog"]))
    assert [tokenizer.id_to_token(int(row[0])) for row in pieces] == ["T", "ĠThe"]
