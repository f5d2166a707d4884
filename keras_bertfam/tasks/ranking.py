"""What tasks share that put passages into an order for queries."""

from collections.abc import Sequence
from typing import Any

from keras_bertfam.arguments import check_number, check_several


def check_rankable(
    task: Any, queries: Sequence[str], passages: Sequence[Any], top_k: int | None
) -> None:
    """Check the arguments of a task's `rank`.

    Args:
        task: a task.
        queries: list of str.
        passages: list of lists of passages, one for each query.
        top_k: int or `None`.

    Raises:
        ValueError: without a preprocessor, or a list of passages for each query, and
            for a `top_k` below 1.
    """
    if task.preprocessor is None:
        raise ValueError("`rank` needs a task with a preprocessor.")
    if top_k is not None:
        check_number("top_k", top_k, 1)
    check_several("query", queries, "queries")
    check_several("passages", passages, "lists of passages")
    if len(queries) != len(passages):
        raise ValueError(
            "`passages` must be a list for each query. Received: "
            f"{len(queries)} queries, {len(passages)} lists."
        )
    for texts in passages:
        check_several("passages", texts, "passages of a query")
