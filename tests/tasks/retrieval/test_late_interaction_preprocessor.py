import string

import numpy as np
import pytest

from keras_bertfam.tasks import LateInteractionPreprocessor
from keras_bertfam.tokenizers import BertTokenizer
from tests import every_task as every

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]"]
WORDS += ["a", "b", "c", ".", ","]
TOKENIZER = BertTokenizer(WORDS, lowercase=True)


def make(tokenizer=TOKENIZER, **kwargs):
    return LateInteractionPreprocessor(tokenizer, 8, 7, **kwargs)


def rows(made, side, names="token_ids padding_mask scored", texts=("a, b", "c a. b.")):
    x = made(tuple([text] for text in texts), None)[0]
    return [
        np.asarray(x[f"{side}_{name}"])[0].astype(int).tolist()
        for name in names.split()
    ]


def test_queries_are_filled_up_and_punctuation_is_skipped():
    ids, seen, scored = rows(make(), "query")
    assert ids == [2, 5, 7, 11, 8, 3, 4]
    assert seen == [1, 1, 1, 1, 1, 1, 0] and scored == [1] * 7
    ids, seen, scored = rows(make(), "passage")
    assert ids == [2, 6, 9, 7, 10, 8, 10, 3]
    assert seen == [1] * 8 and scored == [1, 1, 1, 1, 0, 1, 0, 1]
    ids, seen, scored = rows(make(), "passage", texts=("a", "b"))
    assert ids == [2, 6, 8, 3, 0, 0, 0, 0] and seen == scored == [1] * 4 + [0] * 4


def test_other_settings():
    made = make(fill_queries=False, query_marker="", passage_marker="c")
    ids, seen, scored = rows(made, "query")
    assert ids == [2, 7, 11, 8, 3, 0, 0] and seen == scored == [1] * 5 + [0] * 2
    assert rows(made, "passage", "token_ids", ("a", "b"))[0][:4] == [2, 9, 8, 3]
    assert rows(make(attend_to_filling=True), "query", "padding_mask") == [[1] * 7]
    made = make(skipped_tokens=["c"])
    assert rows(made, "passage", "scored") == [[1, 1, 0, 1, 1, 1, 1, 1]]
    config = {**made.get_config(), "tokenizer": TOKENIZER}
    again = LateInteractionPreprocessor(**config)
    assert rows(again, "passage", "scored") == rows(made, "passage", "scored")


def test_titles_have_the_marker_before_them():
    x, y, weight = make()({"query": ["a"], "passage": ["b"], "title": ["c"]}, None)
    assert np.asarray(x["passage_token_ids"])[0].tolist() == [2, 6, 9, 3, 8, 3, 0, 0]
    assert np.asarray(x["passage_segment_ids"])[0].tolist()[:6] == [0, 0, 0, 0, 1, 1]
    assert np.asarray(y).tolist() == [0] and np.asarray(weight).tolist() == [1]
    long = {"query": ["a"], "passage": ["b b b b"], "title": ["c c c c c"]}
    with pytest.warns(UserWarning, match="cut 1 of 1 passages"):
        ids = np.asarray(make()(long, None)[0]["passage_token_ids"])[0]
    assert ids.tolist() == [2, 6, 9, 9, 3, 8, 8, 3]


def test_scores_of_a_teacher():
    made = make()
    _, y, _ = made((["a", "b"], [["a", "c"], ["b", "c"]]), [[3, 1.5], [2, 0]])
    assert np.asarray(y).tolist() == [[3, 1.5], [2, 0]]
    _, y, _ = made(("a", ["a", "c"]), [3, 1.5])
    assert np.asarray(y).tolist() == [3, 1.5]
    for y in ([1, 2], [[1.0], [2.0]], [[1, 2, 3]] * 2):
        with pytest.raises(ValueError, match="`y` must have a teacher's score"):
            made((["a", "b"], [["a", "c"], ["b", "c"]]), y)
    with pytest.raises(ValueError, match="`y` must have a teacher's score"):
        made((["a", "b"], ["a", "c"]), [[1], [2]])
    with pytest.raises(ValueError, match="`y` must be finite"):
        made((["a"], [["a", "c"]]), [[1, float("nan")]])


@pytest.mark.slow
@pytest.mark.parametrize("kind", every.KINDS)
def test_any_tokenizer(kind):
    """What is skipped are ASCII's characters of punctuation, whatever a token is."""
    tokenizer = every.tokenizer_of(kind)
    made = LateInteractionPreprocessor(tokenizer, 16, 12)
    passages, queries = made.rows_of("passage"), made.rows_of("query")
    known = tokenizer.get_vocabulary()
    skipped = {
        known[token].removesuffix("</w>").strip("Ġ▁") for token in passages.skipped
    }
    assert skipped <= {*string.punctuation}
    there = {token for token in known if token in string.punctuation}
    assert {known.index(token) for token in there} <= {*passages.skipped}
    mask = getattr(tokenizer, "mask_token_id", None)
    assert queries.filler == mask and queries.marker is passages.marker is None
    x, _, _ = made((["one. two"], ["three, four."]), None)
    ids, scored = (np.asarray(x[f"passage_{n}"])[0] for n in ("token_ids", "scored"))
    seen = np.asarray(x["passage_padding_mask"])[0].astype(bool)
    expected = seen & ~np.isin(ids, passages.skipped)
    np.testing.assert_array_equal(scored.astype(bool), expected)
    assert np.asarray(x["query_scored"]).all() == (mask is not None)


def test_errors():
    with pytest.raises(ValueError, match="`query_marker` must be in the tokenizer's"):
        make(query_marker="[Q]")
    with pytest.raises(ValueError, match="`skipped_tokens` must be in the tokenizer's"):
        make(skipped_tokens=["z"])
    with pytest.raises(ValueError, match="`query_length` must be at least 4"):
        LateInteractionPreprocessor(TOKENIZER, 8, 3)
    without = every.tokenizer_of(next(iter(every.WITHOUT_MASKS)))
    with pytest.raises(ValueError, match="`fill_queries` must be `False` or `None`"):
        make(without, fill_queries=True)
