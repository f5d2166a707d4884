"""Share code among tasks that sort passages by their relevance to queries."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from keras_bertfam.arguments import check_number, check_several

# A function from queries and their lists of passages to each list's sort keys and
# scores.
ScoresOf: TypeAlias = Callable[
    [Sequence[str], list[list[Any]]], Iterable[tuple[np.ndarray, np.ndarray]]
]


def rank_passages(
    task: Any,
    query: str | Sequence[str],
    passages: Sequence[Any],
    top_k: int | None,
    scores_of: ScoresOf,
) -> list[Any]:
    """Sort passages by their scores, as `CrossEncoder.rank` does.

    Args:
        task: a task.
        query, passages, top_k: see `CrossEncoder.rank`.
        scores_of: see `ScoresOf`. It isn't called if there are no passages.

    Raises:
        ValueError: see `CrossEncoder.rank`.
    """
    if isinstance(query, str):
        return rank_passages(task, [query], [passages], top_k, scores_of)[0]
    if task.preprocessor is None:
        raise ValueError("`rank` needs a task with a preprocessor.")
    if top_k is not None:
        check_number("top_k", top_k, 1)
    check_several("query", query, "queries")
    check_several("passages", passages, "lists of passages")
    if len(query) != len(passages):
        raise ValueError(
            "`passages` must be a list for each query. Received: "
            f"{len(query)} queries, {len(passages)} lists."
        )
    for texts in passages:
        check_several("passages", texts, "passages of a query")
    lists = [list(texts) for texts in passages]
    if not any(lists):
        return [[] for _ in lists]
    ranked = []
    for ranks, scores in scores_of(query, lists):
        order = np.argsort(-ranks, kind="stable")[:top_k]
        ranked.append([(int(place), float(scores[place])) for place in order])
    return ranked
