"""Hard negatives: passages that a search finds, but that don't answer the query."""

from collections.abc import Sequence

import numpy as np

from keras_bertfam.arguments import check_number, check_several, checked
from keras_bertfam.retrieval.index import (
    BATCHES_AT_ONCE,
    Index,
    has_token_vectors,
)
from keras_bertfam.retrieval.passages import Passage, as_questions, chunks_of
from keras_bertfam.retrieval.token_vectors import best_matches


@checked
def mine_negatives(
    index: Index,
    queries: Sequence[str],
    passages: Sequence[Passage],
    count: int = 1,
    *,
    skip: int = 0,
    depth: int = 50,
    margin: float | None = None,
    relative_margin: float | None = None,
    max_score: float | None = None,
    seed: int | None = None,
    batch_size: int = 32,
    too_long: str | None = None,
) -> tuple[list[str], ...]:
    """Find hard negatives, to train an encoder with.

    A hard negative is a passage that a search finds for a query, but that doesn't
    answer it. For "What is a cat?", the passage "So is a dog." may be one. The first
    `depth` passages that are found are the candidates. Passages that answer the query,
    in any row, are no negatives. A passage that scores very high may answer the query
    too: the two margins and `max_score` leave such passages out. Queries with fewer
    than `count` negatives are left out.

    Args:
        index: `Index` with its encoder, of all passages.
        queries: list of strings. A query may be repeated.
        passages: list of passages, one for each query, which answers it. They needn't
            be in the index.
        count: int. The number of negatives for each row.
        skip: int. How many of the first found passages are left out.
        depth: int. How many found passages are candidates, counting the skipped ones.
        margin: float or `None`. A negative's score must be lower than the answering
            passage's score by this.
        relative_margin: float or `None`. The same, as a share of the answering
            passage's score.
        max_score: float or `None`. The greatest score of a negative.
        seed: int or `None`. `None` takes the best candidates that are left. With a
            seed, they are drawn at random.
        batch_size: int, of the encoder.
        too_long: `"cut"` cuts queries that don't fit into a row; see
            `TextEmbedder.encode`.

    Returns:
        A tuple of lists of equal length: queries, passages, and `count` lists of
        negatives. All are strings, with titles before their texts. `TextEmbedder.fit()`
        takes the tuple as it is. `LateInteraction.fit()` takes the queries, and for
        each query a list of its passage and negatives.

    Raises:
        ValueError: without an encoder, for an encoder that was trained since the index
            was made, for different numbers of queries and passages, for a `depth` that
            leaves fewer than `count` passages, or if no query has negatives.

    Example:

    ```python
    model = keras_bertfam.tasks.TextEmbedder.from_preset("my_bert")
    passages = ["Emma is a novel.", "A cat is an animal.", "So is a dog."]
    index = keras_bertfam.retrieval.Index.build(passages, model)
    x = keras_bertfam.retrieval.mine_negatives(
        index, ["What is a cat?"], passages[1:2])
    model.fit(x)
    ```

    References: [Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906), section 3.2;
    margins as in [Moreira et al., 2024](https://arxiv.org/abs/2407.15831), section 3.
    """
    queries = as_questions(queries)
    check_several("passages", passages, "passages")
    if len(queries) != len(passages):
        raise ValueError(
            "`queries` and `passages` must be equally many. Received: "
            f"{len(queries)} and {len(passages)}."
        )
    if not queries:
        raise ValueError("`queries` must have at least one. Received: none.")
    check_number("count", count, 1)
    if depth - skip < count:
        raise ValueError(
            "`depth` must leave `count` passages after `skip`. Received: "
            f"depth={depth}, skip={skip}, count={count}."
        )
    if index.encoder is None:
        raise ValueError(
            "`index` must have its encoder: give it to `build` or `load`. Received: "
            "an index without one."
        )
    # What is no negative: the query itself, and the passages of equal queries.
    answers: dict[str, set[str]] = {}
    rights = [_as_text(passage) for passage in passages]
    for query, passage in zip(queries, passages, strict=True):
        known = answers.setdefault(_plain(query), {_plain(query)})
        known |= _forms(passage)
    scores = _scores(index.encoder, queries, passages, batch_size, too_long)
    limits = np.full(len(scores), np.inf if max_score is None else max_score)
    if margin is not None:
        limits = np.minimum(limits, scores - margin)
    if relative_margin is not None:
        limits = np.minimum(limits, scores - relative_margin * np.abs(scores))
    rng = None if seed is None else np.random.default_rng(seed)
    rows = []
    found = index.find(queries, min(depth, len(index)), batch_size, too_long)
    for row, (query, limit) in enumerate(zip(queries, limits, strict=True)):
        texts = [
            _as_text(each.passage)
            for each in found[row][skip:]
            if each.score <= limit
            and _forms(each.passage).isdisjoint(answers[_plain(query)])
        ]
        if len(texts) < count:
            continue
        if rng is not None:
            texts = [texts[k] for k in rng.permutation(len(texts))]
        rows.append((query, rights[row], *texts[:count]))
    if not rows:
        raise ValueError(
            f"`index` must have {count} negatives for at least one query. Received: "
            f"none of {len(queries)} has, with depth={depth}, margin={margin}, "
            f"relative_margin={relative_margin}, max_score={max_score}."
        )
    return tuple(map(list, zip(*rows, strict=True)))


def _scores(encoder, queries, passages, batch_size, too_long):
    """Score the passages that answer."""
    scores = []
    more = {} if too_long is None else {"too_long": too_long}
    pairs = zip(queries, passages, strict=True)
    # Some at a time: sparse vectors are as wide as a vocabulary.
    for part in chunks_of(pairs, batch_size * BATCHES_AT_ONCE):
        asked, right = zip(*part, strict=True)
        ours = encoder.encode(list(asked), "query", batch_size, **more)
        theirs = encoder.encode(list(right), "passage", batch_size)
        if has_token_vectors(encoder):
            each = zip(ours, theirs, strict=True)
            scores.append([best_matches([a], [b])[0, 0] for a, b in each])
        else:
            scores.append(np.sum(ours * theirs, axis=1))
    return np.concatenate(scores)


def _plain(text):
    """Make texts equal that differ in white space only."""
    return " ".join(text.split())


def _forms(passage):
    """Give a passage with its title, and without it."""
    parts = [passage] if isinstance(passage, str) else [*passage]
    return {_plain(" ".join(parts)), _plain(parts[-1])}


def _as_text(passage):
    return passage if isinstance(passage, str) else " ".join(passage).strip()
