"""Corpora of several languages, mixed by a power of their sizes."""

import collections
import math
import re

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.corpora.mixed_source import MixedSource, source_from_json
from keras_bertfam.layers import (
    BertTokenizer,
    read_documents,
    read_tokens,
    sample_corpora,
    train_word_piece,
)
from keras_bertfam.layers.data.documents.shares import sampling_shares
from keras_bertfam.layers.data.pipelines import remembered_count
from keras_bertfam.layers.data.prepared.token_mixture import TokenMixture
from keras_bertfam.layers.data.rows.rows import BatchOptions
from keras_bertfam.tasks import (
    DenoisingPreprocessor,
    MaskedLMPreprocessor,
    MaskedLMSentencePairPreprocessor,
    PermutationLMPreprocessor,
    RecurrentLMPreprocessor,
)
from tests import tiny_corpus
from tests.tiny_masked_lm import SPECIALS, WORDS

pytestmark = pytest.mark.any_backend
TOKENIZER = BertTokenizer([*SPECIALS, ".", "##s", *WORDS, "xx", "yy"], lowercase=True)


def dataset(texts):
    return tf.data.Dataset.from_tensor_slices(texts)


def numbered(name, count, words=1):
    return dataset([f"{name} {number} " + "x " * words for number in range(count)])


def names_of(documents):
    return [text.decode().split()[0] for text in documents.as_numpy_iterator()]


def batches_of(data):
    return [tf.nest.map_structure(lambda x: x.numpy(), batch) for batch in data]


def assert_equal(one, two):
    pairs = zip(tf.nest.flatten(one), tf.nest.flatten(two), strict=True)
    assert all(np.array_equal(x, y) for x, y in pairs)


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [
        (1.0, (0.900901, 0.090090, 0.009009)),
        (0.7, (0.806883, 0.160994, 0.032123)),
        (0.5, (0.706101, 0.223289, 0.070610)),
        (0.3, (0.570654, 0.286004, 0.143342)),
        (0.0, (1 / 3, 1 / 3, 1 / 3)),
    ],
)
def test_shares(exponent, expected):
    found = sampling_shares({"en": 1000, "de": 100, "is": 10}, exponent)
    assert [*found.values()] == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_text_is_drawn_by_its_law():
    # Documents of the second corpus are ten times as long.
    corpora = {"a": numbered("a", 400, 5), "b": numbered("b", 30, 50)}
    mixed = sample_corpora(corpora, exponent=0.3, consecutive=4)
    texts = [text.decode() for text in mixed.of_pass(0).as_numpy_iterator()]
    size = collections.Counter()
    for text in texts:
        size[text[0]] += len(text)
    whole = {
        name: sum(len(text) for text in each.as_numpy_iterator())
        for name, each in corpora.items()
    }
    shares = sampling_shares(whole, 0.3)
    total = sum(size.values())
    assert size["b"] / total == pytest.approx(shares["b"], abs=0.01)
    assert total == pytest.approx(sum(whole.values()), rel=0.02)
    # As by a temperature, and by sizes of one's own.
    again = sample_corpora(corpora, temperature=1 / 0.3, sizes=whole)
    assert again.repeats == pytest.approx(mixed.repeats)
    equal = sample_corpora(corpora, sizes={"a": 1, "b": 1})
    assert equal.repeats == pytest.approx(sample_corpora(corpora, 0.0).repeats)


@pytest.mark.slow
def test_passes_go_on_and_depend_on_seed_and_number():
    corpora = {"a": numbered("a", 90), "b": numbered("b", 7)}
    mixed = sample_corpora(corpora, exponent=0.5, consecutive=2)
    seen = collections.Counter()
    passes = [[*mixed.of_pass(k, 3).as_numpy_iterator()] for k in range(3)]
    for texts in passes:
        own = [text for text in texts if text.startswith(b"a ")]
        assert len(own) == mixed.counts["a"] < 90 < 2 * len(own)
        seen.update(own)
    # None comes twice before each came once.
    assert len(seen) == 90 and {*seen.values()} <= {1, 2, 3}
    assert max(seen.values()) - min(seen.values()) <= 1
    places = [names_of(dataset(texts)) for texts in passes]
    assert places[0] != places[1]
    assert [*mixed.of_pass(2, 3).as_numpy_iterator()] == passes[2]
    assert names_of(mixed.of_pass(2, 4)) != places[2]


def test_documents_come_in_turns():
    corpora = {"a": numbered("a", 50), "b": numbered("b", 50)}
    mixed = sample_corpora(corpora, consecutive=8)
    names = names_of(mixed.of_pass(0))
    assert collections.Counter(names) == {"a": 50, "b": 50}
    changes = sum(one != two for one, two in zip(names, names[1:], strict=False))
    assert changes <= 13  # of 14 turns


def test_pieces_of_a_document_stay_together(tmp_path):
    for name in "ab":
        lines = "\n".join(f"{name} {number}" for number in range(30))
        (tmp_path / f"{name}.txt").write_text(f"{lines}\n\n{lines}")
    corpora = {
        name: read_documents(str(tmp_path / f"{name}.txt"), max_bytes=64)
        for name in "ab"
    }
    mixed = sample_corpora(corpora, consecutive=1)
    assert mixed.sizes == {"a": 2, "b": 2}
    owner = None
    for text in mixed.of_pass(0).as_numpy_iterator():
        name = text.replace(b"\0", b"")[:1]
        assert not text.startswith(b"\0") or name == owner
        owner = name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"exponent": 1.5}, "`exponent` must be a finite number from 0.0 to 1.0. Rec"),
        ({"exponent": -0.1}, "`exponent` must be a finite number from 0.0 to 1.0."),
        ({"exponent": math.nan}, "`exponent` must be a finite number"),
        ({"temperature": 0.5}, "`temperature` must be a finite number of at least 1"),
        ({"temperature": math.inf}, "`temperature` must be a finite number"),
        ({"exponent": 0.5, "temperature": 2.0}, "`temperature` must be left out if"),
        ({"sizes": {"a": 1}}, "`sizes` must have a number for each of ['a', 'b']"),
        ({"sizes": {"a": 1, "b": 1, "c": 1}}, "and no others. Received: {'a': 1,"),
        ({"sizes": {"a": 1, "b": 0}}, "`sizes` must be positive, finite numbers. Rec"),
        ({"sizes": {"a": 1, "b": math.inf}}, "Received for 'b': inf."),
        ({"consecutive": 0}, "`consecutive` must be at least 1. Received: 0."),
        ({"corpora": {}}, "`corpora` must be a dict from names to corpora"),
        ({"corpora": ["x"]}, "`corpora` must be a dict from names to corpora"),
        ({"corpora": {"a": "*.txt"}}, "Received for 'a': str."),
        ({"corpora": {"a": dataset([1])}}, "`corpora['a']` must be a `tf.data.Dataset"),
        (
            {"corpora": {"a": dataset([""])}},
            "must all have text. Received: none for 'a'.",
        ),
        ({"corpora": {"a": dataset(["x"]).take(0)}}, "Received: none for 'a'."),
        ({"corpora": {"a": dataset(["x"]).repeat()}}, "that repeats without end"),
    ],
)
def test_what_cant_be_mixed(arguments, message):
    given = {"corpora": {"a": dataset(["x"]), "b": dataset(["y"])}, **arguments}
    with pytest.raises(ValueError, match=re.escape(message)):
        sample_corpora(**given)


@pytest.mark.slow
def test_vocabularies_of_a_mixture():
    corpora = {"a": dataset(["cat"] * 500), "b": dataset(["dog dog"])}
    mixed = sample_corpora(corpora, exponent=0.0)
    assert "dog" in train_word_piece(mixed, 30, min_frequency=100).get_vocabulary()
    plain = sample_corpora(corpora)
    tokenizer = train_word_piece(plain, 30, min_frequency=100)
    assert "dog" not in tokenizer.get_vocabulary()


PREPROCESSORS = {
    "mlm": (MaskedLMPreprocessor, {"strategy": "words"}),
    "rare": (MaskedLMPreprocessor, {"strategy": "smoothed_tokens"}),
    "nsp": (MaskedLMSentencePairPreprocessor, {"sentence_objective": "nsp"}),
    "xlnet": (PermutationLMPreprocessor, {}),
    "bart": (DenoisingPreprocessor, {"objective": "bart"}),
    "recurrent": (RecurrentLMPreprocessor, {}),
}


def make(name):
    cls, settings = PREPROCESSORS[name]
    return cls(TOKENIZER, 16, seed=1, **settings)


def two_corpora():
    own = [text.replace(WORDS[0], "xx") for text in tiny_corpus.texts(9, seed=1)]
    return {"a": tiny_corpus.texts(40), "b": own}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlm", "nsp", "xlnet", "recurrent"])
def test_every_preprocessor_takes_mixed_text_and_goes_on(name):
    texts = {n: dataset(each) for n, each in two_corpora().items()}
    mixed = sample_corpora(texts, exponent=0.3)
    preprocessor = make(name)
    data = preprocessor.dataset(mixed, 4)
    first, second = batches_of(data), batches_of(data)
    assert len(first) > 2
    differ = [
        not np.array_equal(x, y)
        for x, y in zip(
            tf.nest.flatten(first[0]), tf.nest.flatten(second[0]), strict=True
        )
    ]
    assert any(differ)
    resumed = make(name)
    again = resumed.dataset(mixed, 4)
    resumed.position.set(1, 2)
    assert_equal(batches_of(again), second[2:])
    held_out = make(name).dataset(mixed, 4, training=False)
    assert_equal(batches_of(held_out), batches_of(held_out))


def test_packing_once_is_refused():
    mixed = sample_corpora({"a": dataset(["cat"])})
    with pytest.raises(ValueError, match="must be given to `dataset` itself if"):
        make("mlm").pack(mixed)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("languages")
    return {
        name: read_tokens(tiny_corpus.prepare(folder / name, TOKENIZER, texts))
        for name, texts in two_corpora().items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "packing"),
    [("mlm", None), ("rare", "best_fit"), ("nsp", "best_fit"), ("bart", None)],
)
def test_every_preprocessor_takes_mixed_rows_and_goes_on(name, packing, prepared):
    mixed = sample_corpora(prepared, exponent=0.3)
    preprocessor = make(name)
    data = preprocessor.dataset(mixed, 4, packing=packing)
    one = preprocessor.dataset(prepared["a"], 4, packing=packing)
    assert data.element_spec == one.element_spec
    preprocessor.position.set(0)
    first, second = batches_of(data), batches_of(data)
    assert len(first) == len(second) == remembered_count(data)
    resumed = make(name)
    again = resumed.dataset(mixed, 4, packing=packing)
    resumed.position.set(1, 2)
    assert_equal(batches_of(again), second[2:])


def mixed_source(prepared, exponent, **settings):
    mixed = sample_corpora(prepared, exponent)
    assert isinstance(mixed, TokenMixture)
    rows, _ = make("mlm").parts()
    kind = rows.token_rows(BatchOptions(4)).kind
    settings = {"seed": 5, "drop_remainder": False, **settings}
    return mixed, mixed.batch_source(kind, 4, **settings)


def test_rows_are_drawn_by_their_law(prepared):
    mixed, source = mixed_source(prepared, 0.3)
    sizes = [each.reader.index.count for each in source.sources]
    seen = collections.Counter()
    for epoch in range(4):
        of_pass = collections.Counter()
        for batch in range(source.batches):
            chosen, _, numbers = source.rows(epoch, batch)
            of_pass.update(chosen.tolist())
            seen.update(zip(chosen.tolist(), numbers.tolist(), strict=True))
        assert [of_pass[0], of_pass[1]] == source.counts.tolist()
    assert source.counts == pytest.approx(
        [size * rate for size, rate in zip(sizes, mixed.repeats.values(), strict=True)],
        abs=0.5,
    )
    for corpus, size in enumerate(sizes):
        counts = [seen[corpus, number] for number in range(size)]
        assert max(counts) - min(counts) <= 1
    tokens = {name: each.manifest.counts["tokens"] for name, each in prepared.items()}
    shares = sampling_shares(tokens, 0.3)
    assert source.counts[1] / source.counts.sum() == pytest.approx(
        shares["b"], abs=0.05
    )


def test_a_mixed_batch_has_the_rows_of_its_corpora(prepared):
    _, source = mixed_source(prepared, 0.5)
    found = source.read(1, 2)
    for place, (corpus, _, number) in enumerate(zip(*source.rows(1, 2), strict=True)):
        own = source.sources[corpus].reader.read(np.array([number]))
        assert_equal([found[n][place] for n in own], [x[0] for x in own.values()])
    restored = source_from_json(source.to_json())
    assert isinstance(restored, MixedSource)
    assert_equal(restored.read(1, 2), found)


def test_rows_that_go_on_take_no_mixed_rows(prepared):
    with pytest.raises(ValueError, match="must be one prepared corpus, or mixed text"):
        make("xlnet").dataset(sample_corpora(prepared), 4)


def test_counts_of_a_mixture_are_those_of_a_pass(prepared):
    mixed = sample_corpora(prepared, 0.3)
    total = sum(each.manifest.counts["tokens"] for each in prepared.values())
    assert mixed.count_tokens().sum() == pytest.approx(total, rel=0.01)


@pytest.mark.slow
def test_prepared_corpora_that_dont_go_together(prepared, tmp_path):
    with pytest.raises(ValueError, match="must all be prepared, or none"):
        sample_corpora({**prepared, "c": dataset(["x"])})
    with pytest.raises(ValueError, match="with the same `num_workers`"):
        other = read_tokens(prepared["b"].folder, num_workers=2)
        sample_corpora({"a": prepared["a"], "b": other})
    tokenizer = BertTokenizer([*SPECIALS, *WORDS], lowercase=True)
    other = read_tokens(tiny_corpus.prepare(tmp_path / "c", tokenizer))
    with pytest.raises(ValueError, match="must be prepared with one tokenizer"):
        sample_corpora({"a": prepared["a"], "c": other})
    with pytest.raises(ValueError, match="Received: a mixture for 'x'"):
        sample_corpora({"x": sample_corpora(prepared)})
