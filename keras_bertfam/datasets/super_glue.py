"""Read SuperGLUE's lines of JSON, and convert records to the form that tasks take."""

from collections.abc import Iterator
from typing import Any

from keras_bertfam.datasets import files
from keras_bertfam.datasets.files import ANY, check_form
from keras_bertfam.types import Config, Path

_LABEL = (bool, int, str)
# For each task the keys of a line with their types; keys with a question mark are
# optional.
_NLI = {"premise": str, "hypothesis": str, "idx": int, "label?": _LABEL}
_FORMS: dict[str, Config] = {
    "boolq": {"question": str, "passage": str, "idx": int, "label?": _LABEL},
    "cb": _NLI,
    "copa": {
        **{name: str for name in ("premise", "choice1", "choice2", "question")},
        "idx": int,
        "label?": _LABEL,
    },
    "multirc": {
        "idx": int,
        "version?": ANY,
        "passage": {
            "text": str,
            "questions": [
                {
                    "question": str,
                    "idx": int,
                    "answers": [{"text": str, "idx": int, "label?": _LABEL}],
                }
            ],
        },
    },
    "record": {
        "idx": int,
        "source?": ANY,
        "passage": {"text": str, "entities": [{"start": int, "end": int}]},
        "qas": [
            {
                "query": str,
                "idx": int,
                "answers?": [{"text": str, "start?": ANY, "end?": ANY}],
            }
        ],
    },
    "superglue_rte": _NLI,
    "wic": {
        **{name: str for name in ("word", "sentence1", "sentence2")},
        **{name: int for name in ("start1", "end1", "start2", "end2", "idx")},
        "version?": ANY,
        "label?": _LABEL,
    },
    "wsc": {
        "text": str,
        "target": {
            f"span{k}_{name}": kind
            for k in (1, 2)
            for name, kind in {"index": int, "text": str}.items()
        },
        "idx": int,
        "label?": _LABEL,
    },
    "ax_b": {
        "sentence1": str,
        "sentence2": str,
        "idx": int,
        "label?": _LABEL,
        # The parts of a line that make one example.
        "logic?": ANY,
        "knowledge?": ANY,
        "lexical-semantics?": ANY,
        "predicate-argument-structure?": ANY,
    },
    "ax_g": {**_NLI, "pair_id?": ANY},
}
_QUESTIONS = {
    "cause": "What was the cause of this?",
    "effect": "What happened as a result?",
}
_PLACEHOLDER = "@placeholder"
_LEVELS = ("paragraph", "passage", "question", "query", "answer")


def read(name: str, path: Path) -> list[Config]:
    """Read a file of SuperGLUE as records like those of `tensorflow_datasets`.

    Args:
        name: str, of a task with `super_glue`.
        path: path of a file of a JSON object a line.

    Returns:
        A list of dicts: for MultiRC one for each answer, for ReCoRD one for each query.

    Raises:
        ValueError: for a line with a missing key, an unknown key, or a value of another
            type. The message says where.

    Example:

    ```python
    from keras_bertfam.datasets import super_glue
    with open("val.jsonl", "w") as file:
        file.write('{"premise": "a", "hypothesis": "b", "idx": 0, "label": "neutral"}')
    super_glue.read("cb", "val.jsonl")[0]["hypothesis"]  # "b"
    ```

    Reference: [Wang et al., 2019](https://arxiv.org/abs/1905.00537); its released
    files.
    """
    records = []
    for place, line in files.located_json(path):
        check_form(line, _FORMS[name], f"{path!s}, {place}")
        try:
            records += _FLAT.get(name, _as_it_is)(line)
        except ValueError as error:
            raise ValueError(f"{path!s}, {place}: {error}") from error
    return records


def prepare(name: str, record: Config) -> list[Config]:
    """Convert a record of `tensorflow_datasets` to records of a task's columns.

    - COPA's question is a sentence;
    - MultiRC's answer gets its question before it, so that a long paragraph doesn't
      push the question out of a row;
    - ReCoRD's query gives a record for each entity, which replaces the placeholder;
    - WiC's sentences become one text with the word marked in both, and WSC's two spans
      become places in its text, in characters;
    - AX-b's sentences get RTE's names, because RTE's models answer it.

    Args:
        name: str, of a task with `super_glue`.
        record: dict.

    Returns:
        A list of dicts.

    Raises:
        ValueError: for spans that aren't in their text, a question of COPA's that
            isn't `"cause"` or `"effect"`, and a query without a placeholder.

    Example:

    ```python
    from keras_bertfam.datasets import super_glue
    row = {"premise": "It rained.", "choice1": "I got wet.", "choice2": "I slept.",
           "question": "effect"}
    super_glue.prepare("copa", row)[0]["question"]  # "What happened as a result?"
    ```

    References: [Wang et al., 2019](https://arxiv.org/abs/1905.00537), section 3 and
    appendix B; jiant.
    """
    return [*_PREPARED.get(name, _as_it_is)(record)]


def numbers(record: Config) -> list[Any]:
    """List the numbers in a record's `idx`, the outermost first.

    Args:
        record: dict, a record of `tensorflow_datasets` of GLUE or SuperGLUE.

    Returns:
        A list: for MultiRC the numbers of passage, question and answer; for ReCoRD
        those of passage and query; otherwise a single number. `[None]` for a record
        without numbers.

    Example:

    ```python
    from keras_bertfam.datasets import super_glue
    super_glue.numbers({"idx": {"query": 9, "passage": 3}})  # [3, 9]
    ```
    """
    number = record.get("idx")
    if not isinstance(number, dict):
        return [number]
    return [number[level] for level in _LEVELS if level in number]


def _as_it_is(record: Config) -> Iterator[Config]:
    yield record


def _flat_multirc(line):
    for question in line["passage"]["questions"]:
        for answer in question["answers"]:
            yield {
                "paragraph": line["passage"]["text"],
                "question": question["question"],
                "answer": answer["text"],
                "label": answer.get("label"),
                "idx": {
                    "paragraph": line["idx"],
                    "question": question["idx"],
                    "answer": answer["idx"],
                },
            }


def _flat_record(line):
    text = line["passage"]["text"]
    entities = set()
    for entity in line["passage"]["entities"]:
        start, end = entity["start"], entity["end"] + 1
        _check_span(start, end, text)
        entities.add(text[start:end])
    for question in line["qas"]:
        yield {
            "passage": text,
            "query": question["query"],
            "entities": sorted(entities),
            "answers": sorted({a["text"] for a in question.get("answers", ())}),
            "idx": {"passage": line["idx"], "query": question["idx"]},
        }


def _flat_wsc(line):
    yield {**line, **line["target"]}


def _prepared_copa(record):
    question = record["question"]
    if question not in _QUESTIONS:
        raise ValueError(
            f"A question must be one of {[*_QUESTIONS]}. Received: {question!r}."
        )
    yield {**record, "question": _QUESTIONS[question]}


def _prepared_multirc(record):
    number = "-".join(map(str, numbers(record)))
    answer = f"{record['question']} {record['answer']}"
    yield {**record, "answer": answer, "idx": number}


def _prepared_record(record):
    query, answers = record["query"], record["answers"]
    if _PLACEHOLDER not in query:
        raise ValueError(f"A query must have a {_PLACEHOLDER}. Received: {query!r}.")
    question = "-".join(map(str, numbers(record)))
    for number, entity in enumerate(record["entities"]):
        yield {
            "passage": record["passage"],
            "query": query.replace(_PLACEHOLDER, entity),
            "label": int(entity in answers) if answers else None,
            "idx": f"{question}-{number}",
            "candidate": (entity, answers),
        }


def _prepared_wic(record):
    first, second = record["sentence1"], record["sentence2"]
    spans = [[record[f"start{k}"], record[f"end{k}"]] for k in (1, 2)]
    for span, text in zip(spans, (first, second), strict=True):
        _check_span(*span, text)
    beyond = len(first) + 1
    spans[1] = [place + beyond for place in spans[1]]
    text = f"{first} {second}"
    yield {**record, "text": text, "first": spans[0], "second": spans[1]}


def _prepared_wsc(record):
    text = record["text"]
    first, second = (
        _span_of_words(text, record[f"span{k}_index"], record[f"span{k}_text"])
        for k in (1, 2)
    )
    yield {**record, "first": first, "second": second}


def _prepared_ax_b(record):
    first, second = record["sentence1"], record["sentence2"]
    yield {**record, "premise": first, "hypothesis": second}


def _span_of_words(text, index, span):
    """Find the place of a span, given the number of its first word.

    Some spans aren't written as in their texts, and words include punctuation. So the
    place is that of as many words as the span has; if these contain the span itself,
    its place within them.
    """
    words, at = [], 0
    for word in text.split():
        begin = text.index(word, at)
        at = begin + len(word)
        words.append((begin, at))
    count = len(span.split())
    if not count or not 0 <= index <= len(words) - count:
        raise ValueError(
            f"A span must be words of its text. Received: {span!r}, from word {index} "
            f"on, in {text!r}."
        )
    begin, end = words[index][0], words[index + count - 1][1]
    found = text[begin:end].find(span)
    return [begin, end] if found < 0 else [begin + found, begin + found + len(span)]


def _check_span(start, end, text):
    if not 0 <= start < end <= len(text):
        raise ValueError(
            f"A span must be in its text. Received: {[start, end]}, in {text!r}."
        )


_FLAT = {"multirc": _flat_multirc, "record": _flat_record, "wsc": _flat_wsc}
_PREPARED = {
    "copa": _prepared_copa,
    "multirc": _prepared_multirc,
    "record": _prepared_record,
    "wic": _prepared_wic,
    "wsc": _prepared_wsc,
    "ax_b": _prepared_ax_b,
}
