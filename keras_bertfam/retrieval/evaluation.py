"""Measures of a search: queries, relevant passages, and scores."""

import csv
import dataclasses
import math
import numbers
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

from keras_bertfam.arguments import check_number, check_several, checked
from keras_bertfam.parsing import parse_json
from keras_bertfam.retrieval.index import Index
from keras_bertfam.retrieval.passages import text_or_titled
from keras_bertfam.types import Path

MEASURES = ("nDCG@10", "RR@10", "AP", "R@100")


@dataclasses.dataclass(frozen=True)
class SearchData:
    """Passages, queries, and which passages are relevant to which.

    Attributes:
        passages: dict from ids to strings, or tuples of title and text.
        queries: dict from ids to strings.
        relevance: dict from ids of queries to dicts from ids of passages to grades,
            such as `{"q1": {"p2": 1}}`. Grade 0 is for a passage that isn't relevant;
            so is a passage without a grade.

    Raises:
        ValueError: for an unknown id in `relevance`, or a query without a relevant
            passage.

    Example:

    ```python
    data = keras_bertfam.retrieval.SearchData(
        {"p1": "A cat.", "p2": "A dog."}, {"q1": "Who barks?"}, {"q1": {"p2": 1}})
    ```
    """

    passages: Mapping[str, Any]
    queries: Mapping[str, str]
    relevance: Mapping[str, Mapping[str, int]]

    def __post_init__(self) -> None:
        for name in ("passages", "queries"):
            others = [key for key in getattr(self, name) if not isinstance(key, str)]
            if others:
                raise ValueError(
                    f"`{name}` must have strings as ids. Received: {others[0]!r}."
                )
        for name, passage in self.passages.items():
            text_or_titled(passage, f"for {name!r}", "passages")
        for query, grades in self.relevance.items():
            if query not in self.queries:
                raise ValueError(
                    "`relevance` must have ids of `queries` as keys. "
                    f"Received: {query!r}."
                )
            unknown = [passage for passage in grades if passage not in self.passages]
            if unknown:
                raise ValueError(
                    "`relevance` must have ids of `passages`. Received: "
                    f"{unknown[0]!r}, for the query {query!r}."
                )
            odd = [x for x in grades.values() if not isinstance(x, numbers.Integral)]
            if odd:
                raise ValueError(
                    "`relevance` must have ints as grades. Received: "
                    f"{odd[0]!r}, for the query {query!r}."
                )
            if not any(grade > 0 for grade in grades.values()):
                raise ValueError(
                    "`relevance` must have a passage of a grade above 0 for each "
                    f"query. Received none for {query!r}."
                )
        if not self.relevance:
            raise ValueError("`relevance` must have at least one query. Received: {}.")

    @classmethod
    @checked
    def from_beir(cls, folder: Path, split: str = "test") -> Self:
        """Read a folder in the format of the benchmark BEIR.

        Args:
            folder: path of a folder with `corpus.jsonl` (`_id`, `title`, `text`),
                `queries.jsonl` (`_id`, `text`) and `qrels/SPLIT.tsv` (`query-id`,
                `corpus-id`, `score`, with a line of these names).
            split: str.

        Returns:
            `SearchData` with the queries of the split. Queries without a relevant
            passage are left out: no measure is defined for them.

        Raises:
            ValueError: for a missing file, line or column, and for unknown ids.

        Example:

        ```python
        # data = keras_bertfam.retrieval.SearchData.from_beir("scifact")
        ```

        Reference: [Thakur et al., 2021](https://arxiv.org/abs/2104.08663).
        """
        root = pathlib.Path(folder)
        passages = {
            name: (title, text) if title and text else title or text
            for name, (title, text) in _rows(root / "corpus.jsonl").items()
        }
        questions = _rows(root / "queries.jsonl")
        relevance = _grades(root / "qrels" / f"{split}.tsv")
        relevance = {
            query: grades
            for query, grades in relevance.items()
            if any(grade > 0 for grade in grades.values())
        }
        queries = {q: text for q, (_, text) in questions.items() if q in relevance}
        return cls(passages, queries, relevance)


def _existing(path):
    if not path.is_file():
        raise ValueError(f"A folder of BEIR must have {path}. Received: no such file.")
    return path


def _rows(path):
    """Read titles, which may be missing, and texts by their ids."""
    rows = {}
    with _existing(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = parse_json(line)
            except ValueError as error:
                raise ValueError(
                    f"Line {number} of {path} must be JSON. {error}."
                ) from error
            row = row if isinstance(row, dict) else {}
            name, text, title = row.get("_id"), row.get("text"), row.get("title") or ""
            if not all(isinstance(value, str) for value in (name, text, title)):
                raise ValueError(
                    f"Line {number} of {path} must have the strings _id, text and, if "
                    f"there is one, title. Received: {line.strip():.100}."
                )
            if name in rows:
                raise ValueError(
                    f"Each id of {path} must be there once. Received twice: {name!r}, "
                    f"the second time in line {number}."
                )
            rows[name] = (title, text)
    return rows


def _grades(path):
    relevance: dict[str, dict[str, int]] = {}
    with _existing(path).open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        header = next(rows, [])
        if header != ["query-id", "corpus-id", "score"]:
            raise ValueError(
                f"The first line of {path} must name query-id, corpus-id and score. "
                f"Received: {header}."
            )
        for number, row in enumerate(rows, 2):
            if len(row) != 3 or not re.fullmatch("-?[0-9]{1,9}", row[2]):
                raise ValueError(
                    f"Line {number} of {path} must have two ids and a whole number. "
                    f"Received: {row}."
                )
            grades = relevance.setdefault(row[0], {})
            if row[1] in grades:
                raise ValueError(
                    f"A pair of {path} must have one grade. Received twice: "
                    f"{row[:2]}, the second time in line {number}."
                )
            grades[row[1]] = int(row[2])
    return relevance


@checked
def evaluate_search(
    data: SearchData,
    search: Any,
    k: int = 100,
    reranker: Any = None,
    rerank: int = 100,
    measures: Sequence[str] = MEASURES,
    batch_size: int = 32,
    too_long: str | None = None,
) -> dict[str, float]:
    """Measure how well a search finds passages, with or without a reranker.

    Args:
        data: `SearchData`.
        search: one of three:

            - a task that makes vectors, such as `TextEmbedder`, `SparseEncoder`,
              `LateInteraction` or `DualEncoder`: all passages are compared exactly;
            - an `Index` of these passages, with its encoder;
            - a function, such as BM25. It takes a list of queries and `k`, and gives a
              list for each query, of pairs of a passage's id in `data` and its score.

        k: int. How many passages are found for each query, at least as many as the
            measures look at. Those without a cutoff, such as `"AP"`, look at these.
        reranker: `CrossEncoder`, `LateInteraction` or `None`. Ranks the first passages
            of each query anew.
        rerank: int. How many passages of each query the reranker reads. The others stay
            behind these.
        measures: names of ir-measures: `"nDCG@10"`, `"RR@10"` (the reciprocal rank),
            `"AP"` (average precision), `"R@100"` (recall), `"P@1"` and others.
        batch_size: int, of the models.
        too_long: `"cut"` cuts queries that don't fit into a row, as BEIR does; see
            `TextEmbedder.encode`.

    Returns:
        Dict from measures to their means over the queries. nDCG's gain is the grade. A
        passage with the same id as the query is left out, as in BEIR. Passages with
        equal scores are ordered by their ids, the last first, as in trec_eval.

    Raises:
        ValueError: for an argument out of its range, an unknown measure, or unknown
            ids.
        ImportError: without ir-measures, which the `evaluation` extra has.

    Example:

    ```python
    embedder = keras_bertfam.tasks.TextEmbedder.from_preset("my_bert")
    data = keras_bertfam.retrieval.SearchData(
        {"p1": "A cat.", "p2": "A dog."}, {"q1": "Who barks?"}, {"q1": {"p2": 1}})
    keras_bertfam.retrieval.evaluate_search(data, embedder)
    ```
    """
    try:
        import ir_measures
    except ImportError as error:
        raise ImportError(
            f"Measures need {error.name}: pip install keras-bertfam[evaluation]."
        ) from error
    check_number("k", k, 1)
    check_number("rerank", rerank, 1)
    check_several("measures", measures)
    if not measures:
        raise ValueError("`measures` must have at least one. Received: none.")
    parsed = [_measure(ir_measures, name) for name in measures]
    deepest = max(measure.params.get("cutoff", 1) for measure in parsed)
    if deepest > k:
        raise ValueError(
            f"`k` must be at least {deepest}, the greatest cutoff of `measures`. "
            f"Received: k={k}."
        )
    names = list(data.relevance)
    texts = [data.queries[name] for name in names]
    # A query that is a passage finds itself, which doesn't count.
    own = any(name in data.passages for name in names)
    found = _finder(data, search, batch_size, too_long)(texts, k + own)
    if len(found) != len(names):
        raise ValueError(
            "`search` must give a list of passages for each query. Received: "
            f"{len(found)} for {len(names)}."
        )
    run = {}
    for name, pairs in zip(names, found, strict=True):
        given = [(str(p), float(s)) for p, s in pairs if p != name]
        scored = dict(given)
        if len(scored) < len(given):
            raise ValueError(
                "`search` must give each passage once. Received one twice for "
                f"{name!r}."
            )
        unknown = [p for p in scored if p not in data.passages]
        if unknown:
            raise ValueError(
                f"`search` must give ids of `data.passages`. Received: {unknown[0]!r}."
            )
        if any(map(math.isnan, scored.values())):
            raise ValueError(
                "`search` must give scores that are numbers. Received NaN for "
                f"{name!r}."
            )
        ranked = sorted(scored, key=lambda p: (scored[p], p), reverse=True)[:k]
        # Libraries of measures differ in how they order equal or close scores.
        run[name] = {p: -float(place) for place, p in enumerate(ranked)}
    if reranker is not None:
        run = _reranked(data, run, reranker, rerank, batch_size)
    grades = {q: {p: int(x) for p, x in of.items()} for q, of in data.relevance.items()}
    scores = ir_measures.calc_aggregate(parsed, grades, run)
    return {str(name): float(scores[name]) for name in parsed}


def _measure(library, name):
    try:
        return library.parse_measure(name)
    except (NameError, ValueError) as error:
        raise ValueError(
            f"`measures` must be names of ir-measures, such as {', '.join(MEASURES)}. "
            f"Received: {name!r}."
        ) from error


def _finder(data, search, batch_size, too_long):
    """Make a function from queries and `k` to pairs of an id and a score."""
    ids: dict[Any, list[str]] = {}
    for name, passage in data.passages.items():
        ids.setdefault(_plain(passage), []).append(name)
    if not isinstance(search, Index):
        if not hasattr(search, "encode"):
            return search
        # What has no text has no vector, and isn't found.
        passages = [passage for passage in ids if passage]
        search = Index.build(passages, search, batch_size=batch_size)

    def find(queries, k):
        count = min(k, len(search))
        found = search.find(queries, count, batch_size, too_long=too_long)
        for hit in (hit for hits in found for hit in hits):
            if _plain(hit.passage) not in ids:
                raise ValueError(
                    "`search` must be an index of `data.passages`. Received one with "
                    f"{hit.passage!r:.100}."
                )
        # Equal passages are one in an index, and have one score.
        return [
            [(name, hit.score) for hit in hits for name in ids[_plain(hit.passage)]]
            for hits in found
        ]

    return find


def _reranked(data, run, reranker, rerank, batch_size):
    """Put the best of each query into a reranker's order, and the others behind them.

    Scores are places then: of `{"a": 9, "b": 8, "c": 7}`, of which the first two change
    places, it makes `{"b": 0, "a": -1, "c": -2}`. A ranker's own may be equal.
    """
    best = {q: sorted(scores, key=lambda p: -scores[p]) for q, scores in run.items()}
    # Models that make vectors have titles in rows of their own.
    titled = hasattr(reranker, "encode")
    texts = [
        [data.passages[p] if titled else _text(data.passages[p]) for p in ps[:rerank]]
        for ps in best.values()
    ]
    queries = [data.queries[q] for q in best]
    ranked = reranker.rank(queries, texts, batch_size=batch_size)
    again = {}
    for (query, passages), pairs in zip(best.items(), ranked, strict=True):
        order = [passages[place] for place, _ in pairs] + passages[rerank:]
        again[query] = {passage: -float(place) for place, passage in enumerate(order)}
    return again


def _plain(passage):
    """Leave out a blank title or text; `""` stands for a passage without both."""
    parts = (passage,) if isinstance(passage, str) else passage
    told = tuple(part for part in parts if part.strip())
    return told if len(told) > 1 else "".join(told)


def _text(passage):
    return (" ".join(passage) if isinstance(passage, tuple) else passage).strip()
