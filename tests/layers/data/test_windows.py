import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.data.layouts import layouts
from keras_bertfam.layers.data.windows import make_windows


class Ids:
    start_token_id, end_token_id = 101, 102


def released_windows(question, context, length, stride):
    """The windows of the released BERT: (start, size), and each token's best."""
    room = length - len(question) - 3
    spans, at = [], 0
    while True:
        size = min(len(context) - at, room)
        spans.append((at, size))
        if at + size == len(context):
            break
        at += min(size, stride)
    best = []
    for token in range(len(context)):
        scores = [
            min(token - at, at + size - 1 - token) + 0.01 * size
            if at <= token < at + size
            else -1
            for at, size in spans
        ]
        best.append(int(np.argmax(scores)))
    return spans, best


@pytest.mark.parametrize("layout", ["bert", "roberta", "xlnet"])
@pytest.mark.parametrize("length,stride", [(16, 4), (12, 5), (20, 30), (11, 1)])
def test_windows_are_those_of_the_released_bert(layout, length, stride):
    rng = np.random.default_rng(length)
    questions = [[7] * int(n) for n in rng.integers(0, 6, 12)]
    contexts = [list(range(200, 200 + int(n))) for n in rng.integers(0, 40, 12)]
    layout = layouts()[layout]
    windows = make_windows(
        tf.ragged.constant(questions, tf.int32, ragged_rank=1),
        tf.ragged.constant(contexts, tf.int32, ragged_rank=1),
        Ids,
        layout,
        length,
        stride,
    )
    rows = iter(
        zip(*(windows[k].to_list() for k in ("token_ids", "span_mask")), strict=True)
    )
    starts = iter(windows["start_mask"].to_list())
    numbers = {k: v.numpy() for k, v in windows.items() if isinstance(v, tf.Tensor)}
    seen = 0
    for example, (question, context) in enumerate(
        zip(questions, contexts, strict=True)
    ):
        extra = layout.separators - 1
        spans, best = released_windows(question, context, length - extra, stride)
        for number, (at, size) in enumerate(spans):
            ids, mask = next(rows)
            part = context[at : at + size]
            sep = [102] * layout.separators
            if layout.start_last:
                expected = [*part, *sep, *question, 102, 101]
            else:
                expected = [101, *question, *sep, *part, 102]
            assert ids == expected
            assert [i for i, m in zip(ids, mask, strict=True) if m] == part
            here = [200 + t for t in range(at, at + size) if best[t] == number]
            begins = next(starts)
            assert [i for i, m in zip(ids, begins, strict=True) if m] == here
            assert numbers["example"][seen] == example
            assert numbers["first"][seen] == at
            assert numbers["size"][seen] == size
            assert ids[numbers["cls_position"][seen]] == 101
            seen += 1
    assert seen == len(numbers["example"])
