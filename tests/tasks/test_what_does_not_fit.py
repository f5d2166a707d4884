"""The guide's table of what becomes of texts that are longer than a row."""

import re
import warnings

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks, tokenizers
from tests import every_task as every
from tests import tiny_passages
from tests.checkout import ROOT
from tests.tasks.generation.text_to_text_tokenizers import WORDS, word_piece
from tests.tiny_masked_lm import SPECIALS

GUIDE = ROOT / "docs" / "fine_tuning.md"
DOCUMENTS = "all that pre-train on documents"
LONG = [" ".join(WORDS[:12]), " ".join(WORDS[3:14]), WORDS[0]]  # two of the three
LENGTH = 7
KINDS = {"PermutationLM": "xlnet", "Denoising": "t5"}
AUTOENCODERS = ("MaskedAutoencoder", "DenoisingAutoencoder")
PASSAGES = ("OpenQuestionAnswering", "RetrievalAugmentedGenerator")
PASSAGES += ("KnowledgeAugmentedMaskedLM",)
PAIRS = ("CrossEncoder", "DualEncoder", "LateInteraction", "MaskedLMSentencePair")


def preprocessor(name, length=LENGTH):
    cls, more = getattr(tasks, f"{name}Preprocessor"), {}
    if name == "RelationClassifier":  # which has four markers besides
        length = 12
    if "Elmo" in name or name == "BidirectionalLM":
        tokenizer = tokenizers.ElmoTokenizer()
    elif name in KINDS:
        tokenizer = every.tokenizer_of(KINDS[name])
    elif name in ("SpanBoundaryLM", *AUTOENCODERS):  # of whole words
        tokenizer = tokenizers.BertTokenizer([*SPECIALS, *WORDS, "##s"])
    else:
        tokenizer = word_piece()
    if name.endswith("TokenClassifier") or name == "DependencyParser":
        more = {"label_names": ["O", "B-X"]}
    elif name == "SpanQuestionAnswering":
        more = {"question_length": 2, "doc_stride": 1}
    elif name in PASSAGES[:2]:
        more = {"num_passages": 2}
    elif name == "KnowledgeAugmentedMaskedLM":
        more = {"num_candidates": 2, "passage_length": length - 3}
        more["mask_selection_length"] = 2
    elif name == "PermutationLM":
        more = {"reuse_length": 0}
    elif name in ("DualEncoder", "LateInteraction"):
        more = {"query_length": 6}
    made = cls(tokenizer, sequence_length=length, **more)
    if name in PASSAGES:
        made.search = tiny_passages.make_search()
    if name == "Distiller":
        made.adapt(tf.data.Dataset.from_tensor_slices(LONG))
    return made


def given_to(name):
    words = [text.split() for text in LONG]
    if name.endswith("TokenClassifier"):
        return words, [["O"] * len(row) for row in words]
    if name == "DependencyParser":
        return words, [[(0, "O")] * len(row) for row in words]
    if name == "RelationClassifier":
        spans = [[0, len(WORDS[k])] for k in (0, 3, 0)]
        return ({"text": LONG, "first": spans, "second": spans},)
    if name == "SpanQuestionAnswering":
        return ({"question": LONG, "context": LONG[::-1]},)
    if name == "MultipleChoice":
        return ({"context": LONG, "choices": [["a"], ["a"], ["a"]]},)
    if name in PAIRS:
        return (LONG, [WORDS[0]] * 3), None
    if name == "TextToText":
        return LONG, LONG[::-1]
    if name == "RetrievalAugmentedGenerator":
        return [WORDS[0]] * 3, LONG
    if name == "OpenQuestionAnswering":
        return ([WORDS[0]] * 3,)
    return (LONG,)


def said_by(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(w.message) for w in caught if "Preprocessor cut " in str(w.message)]


def rows_of_table():
    """Pairs of a name in the table's first column and what its last says."""
    text = GUIDE.read_text().partition("## What doesn't fit in a row")[2]
    text = text.partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \| (.+?) \|$", text, re.M)[1:]
    return [(name.strip("`"), becomes) for name, _, becomes in rows]


def names():
    """Preprocessors by the names of their tasks."""
    return [x.removesuffix("Preprocessor") for x in tasks.__all__ if "Preproc" in x]


def row_of(name):
    """What the table calls a preprocessor's task."""
    name = name.removeprefix("Elmo")
    named = {row for row, _ in rows_of_table()}
    return name if name in named - {"CausalLM", "DualEncoder"} else DOCUMENTS


def test_table_names_what_there_is():
    listed = {name for name, _ in rows_of_table()} - {DOCUMENTS}
    assert listed <= {*names()}
    pretraining = tasks.MaskedLMPreprocessor.__mro__[3:]
    for name in names():
        if row_of(name) == DOCUMENTS:
            made = getattr(tasks, f"{name}Preprocessor")
            assert any(base in pretraining[:2] for base in made.__mro__), name
    said = {becomes for _, becomes in rows_of_table()}
    assert said == {"cut and said", "in parts", "refused"}


def check_cut(name):
    made = preprocessor(name)
    # Each use is said once.
    found = said_by(lambda: made(*given_to(name)))
    assert any(re.search(r"cut 2 of 3 (?!passages)", x) for x in found) or (
        name == "OpenQuestionAnswering" and re.search("cut . of 6 passages", found[0])
    ), (name, found)
    assert len({*found}) == len(found)
    assert not said_by(lambda: made(*given_to(name)))


def check_refused(name):
    if name == "CausalLM":
        made = preprocessor(name)
        with pytest.raises(ValueError, match="fewer than 7 tokens"):
            made.generate_preprocess(LONG)
    elif name in ("DualEncoder", "TextEmbedder"):
        made = preprocessor(name)
        with pytest.raises(ValueError, match="must fit"):
            if name == "DualEncoder":
                made.batches("query", LONG, 2, "error")
            else:
                made.check_lengths(LONG)
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="tokens"):
            preprocessor(name)(LONG, *given_to(name)[1:])


def check_parts(name):
    if name == "TokenClassifier":
        made = preprocessor(name)
        x, y = given_to(name)
        batches = []
        data = made.dataset((x, y), 2, training=False)
        assert not said_by(lambda: batches.extend(data))
        seen = sum(float(tf.reduce_sum(weight)) for _, _, weight in batches)
        assert seen == sum(map(len, x))
    elif name == "SpanQuestionAnswering":
        made = preprocessor(name, 12)
        x = {"question": ["a"], "context": [" ".join(LONG)]}
        rows = []
        assert not said_by(lambda: rows.append(made(x)))
        tokens = made.tokenize(tf.constant(x["context"])).flat_values
        read = np.asarray(rows[0]["token_ids"])[np.asarray(rows[0]["start_mask"])]
        np.testing.assert_array_equal(np.sort(read), np.sort(tokens))
    else:
        made = preprocessor("CausalLM")
        batches = []
        texts = tf.data.Dataset.from_tensor_slices(LONG)
        data = made.dataset(texts, 1, training=False)
        assert not said_by(lambda: batches.extend(data))
        read = {int(i) for _, y, _ in batches for i in np.ravel(y)}
        tokens = made.tokenizer(tf.constant(LONG)).flat_values.numpy()
        assert {int(i) for i in tokens[1:]} <= read


@pytest.mark.slow
@pytest.mark.any_backend
def test_table_holds():
    """Every preprocessor does what the guide's table says of its task."""
    checks = {"refused": check_refused, "in parts": check_parts}
    done, wrong = set(), []
    for row, becomes in rows_of_table():
        cut = [name for name in names() if row in (row_of(name), name)]
        check = checks.get(becomes, check_cut)
        for name in cut if check is check_cut else [row]:
            try:
                check(name)
            except (AssertionError, ValueError) as error:
                wrong.append((row, becomes, name, str(error)[:300]))
            done.add(name)
    assert not wrong
    assert {*names()} <= done


@pytest.mark.slow
def test_a_text_that_is_cut_is_said_once_for_each_use():
    made = preprocessor("TextClassifier")
    labels = [0, 1, 0]
    data = made.dataset((LONG, labels), 2)
    assert not said_by(lambda: preprocessor("TextClassifier", 24)(LONG))
    (said,) = said_by(lambda: list(data.take(6)))
    assert said == (
        "TextClassifierPreprocessor cut 2 of 3 texts to sequence_length=7 tokens: "
        "the rest isn't read."
    )
    batches, _ = made.inputs(LONG, 2)
    assert len(said_by(lambda: list(batches))) == 1
    assert len(said_by(lambda: made(LONG))) == 1
    assert not said_by(lambda: (made(LONG), list(batches)))
    # Graphs of others, which may be saved, call no Python.
    function = tf.function(lambda x: made(x), autograph=False)
    graph = function.get_concrete_function(tf.TensorSpec([None], tf.string)).graph
    inner = [n.op for f in graph.as_graph_def().library.function for n in f.node_def]
    assert inner and not [op for op in inner if "PyFunc" in op]
