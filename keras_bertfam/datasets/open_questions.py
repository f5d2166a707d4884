"""Read questions without passages from the files of ORQA, DPR and TriviaQA."""

import ast
import itertools
import os
import re
import warnings
from collections.abc import Iterator
from typing import Any

from keras_bertfam import parsing
from keras_bertfam.datasets import files
from keras_bertfam.datasets.files import ANY, check_form
from keras_bertfam.layers.data.pairs.questions import answer_pattern
from keras_bertfam.text_files.sources import suffix_of
from keras_bertfam.types import Config, Path

_LINE = {"question": str, "answer?": [str]}
_DOCUMENT = {
    "Filename?": str,
    "Title?": str,
    "DocPartOfVerifiedEval?": bool,
    # Keys of how a document was found, and of comments on it.
    **{
        f"{name}?": ANY
        for name in (
            "DocSource",
            "DocVerifiedAttempt",
            "DocVerifiedEvalAttempt",
            "LinkProbability",
            "Rho",
            "Description",
            "DisplayUrl",
            "Rank",
            "Url",
        )
    },
}
_TRIVIA = {
    "Data": [
        {
            "Question": str,
            "QuestionId": str,
            "Answer?": {
                "Value": str,
                "Aliases": [str],
                "HumanAnswers?": [str],
                # Keys of other spellings of answers, and of their kinds.
                **{
                    f"{name}?": ANY
                    for name in (
                        "NormalizedValue",
                        "NormalizedAliases",
                        "MatchedWikiEntityName",
                        "NormalizedMatchedWikiEntityName",
                        "Type",
                        "Number",
                        "Unit",
                        "Multiplier",
                    )
                },
            },
            "EntityPages?": [_DOCUMENT],
            "SearchResults?": [_DOCUMENT],
            "QuestionPartOfVerifiedEval?": bool,
            "QuestionVerifiedEvalAttempt?": ANY,
            "QuestionSource?": ANY,
        }
    ],
    "VerifiedEval?": bool,
    "Domain?": ANY,
    "Split?": ANY,
    "Version?": ANY,
}
# Keys of a question's documents, and their folders of evidence.
_EVIDENCE = {"EntityPages": "wikipedia", "SearchResults": "web"}
_WORDS = 400  # words of a document's beginning, as in BERT's paper
_STRING = r"""(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
# Matches a list of strings, without anything nested or computed.
_LIST = re.compile(rf"\[\s*(?:{_STRING}\s*(?:,\s*{_STRING}\s*)*+(?:,\s*)?)?\]", re.S)
_LONGEST = 1_000_000  # characters of such a list


def read(path: Path) -> list[Config]:
    """Read questions and their answers, in a format that the file's ending tells.

    - `.jsonl`, ORQA's: one object a line with `question` and `answer`, a list;
    - `.json`, TriviaQA's: an answer's value, its aliases and answers added by people
      are correct. Of a file of verified questions only the verified ones are read;
    - any other, DPR's: a question, a tab, and a list of strings as Python writes it.
      The list is parsed and never run.

    Each may be followed by `.gz` or `.zst`.

    Args:
        path: path of a file.

    Returns:
        A list of dicts of `question`; `answer`, a list of strings, or `None` if it
        isn't published; and possibly `idx`.

    Raises:
        ValueError: for a file of another format, an unknown key, and where that is.
    """
    suffix = suffix_of(path)
    if suffix in (".jsonl", ".ndjson"):
        return _orqa_questions(path)
    if suffix == ".json":
        return [*map(_trivia_question, trivia_data(path))]
    return [*_dpr_questions(path)]


def _orqa_questions(path):
    found = files.located_json(path)
    for place, line in found:
        check_form(line, _LINE, f"{path!s}, {place}")
    return [{"answer": None, **line} for _, line in found]


def _dpr_questions(path):
    for number, values in files.read_records(path, "\t"):
        if len(values) != 2:
            raise ValueError(
                f"{path!s}, line {number}: expected a question, a tab and a list of "
                f"answers. Received: {values!r}."
            )
        question, written = values
        try:
            yield {"question": question, "answer": parse_list(written)}
        except ValueError as error:
            raise ValueError(f"{path!s}, line {number}: {error}") from error


def parse_list(text: str) -> list[str]:
    """Read a list of strings as Python writes it. Nothing is run.

    Args:
        text: str, such as `"['Jane Austen', \\"O'Neill\\"]"`.

    Raises:
        ValueError: for anything but a list of strings, and more than a million
            characters.
    """
    text = text.strip()
    expected = "expected a list of strings as Python writes it."
    if len(text) > _LONGEST or not _LIST.fullmatch(text):
        raise ValueError(f"{expected} Received: {text:.100}.")
    try:
        with warnings.catch_warnings():
            # Patterns may have `\\s`, which isn't an escape of Python's strings and so
            # stays.
            warnings.simplefilter("ignore")
            return [*ast.literal_eval(text)]
    except (SyntaxError, ValueError, MemoryError) as error:  # as of "\\x"
        raise ValueError(f"{expected} Received: {text:.100}. {error}.") from error


def trivia_data(path: Path) -> list[Config]:
    """Read the questions of a file of TriviaQA; refuse unknown keys.

    Args:
        path: path of a file.

    Returns:
        A list of dicts with the file's keys. Of a file of verified questions only the
        verified ones, with only their verified documents if some are marked.

    Raises:
        ValueError: for a file of another format, an unknown key, and where that is.
    """
    text = "".join(files.decoded_lines(path))
    try:
        content = parsing.parse_json(text, many=True, nan=True)
    except ValueError as error:
        raise ValueError(f"{path!s} must be JSON: {error}.") from error
    check_form(content, _TRIVIA, f"{path!s}")
    data = content["Data"]
    if not content.get("VerifiedEval"):
        return data
    return [
        {**each, **{key: _verified(each.get(key, ())) for key in _EVIDENCE}}
        for each in data
        if each.get("QuestionPartOfVerifiedEval")
    ]


def _verified(documents):
    return [each for each in documents if each.get("DocPartOfVerifiedEval", True)]


def _trivia_question(each):
    return {
        "question": each["Question"],
        "answer": _aliases(each),
        "idx": each["QuestionId"],
    }


def _aliases(each):
    """List all correct answers to a question of TriviaQA, the value first."""
    answer = each.get("Answer")
    if answer is None:
        return None
    found = [answer["Value"], *answer["Aliases"], *answer.get("HumanAnswers", ())]
    return [*dict.fromkeys(text for text in found if text.strip())]


def read_with_evidence(path: Path) -> list[Config]:
    """Read TriviaQA's questions with their documents, in the form of SQuAD.

    As in BERT's paper, a document's first 400 words are a question's context if they
    contain an answer; other documents are left out. All answers in the context count,
    each at its first place, the earliest one first.

    Args:
        path: path of a file in the folder `qa` of TriviaQA for reading comprehension,
            beside `evidence`.

    Returns:
        A list of dicts, as from `files.read_squad`.

    Raises:
        ValueError: for a file of another format, an unknown key, and a document whose
            name leads out of the folder.
        FileNotFoundError: if there are no documents.

    References: [Joshi et al., 2017](https://arxiv.org/abs/1705.03551); [Devlin et al.,
    2018](https://arxiv.org/abs/1810.04805), section 4.2.
    """
    folder = os.path.join(os.path.dirname(os.path.abspath(path)), os.pardir, "evidence")
    records, missing, count = [], [], 0
    for each in trivia_data(path):
        answers = _aliases(each)
        for title, place in _documents(each, os.path.normpath(folder)):
            count += 1
            if not os.path.isfile(place):
                missing.append(place)
                continue
            context = _beginning(place)
            found = _places(context, answers or ())
            if found:
                records.append(
                    {
                        "id": f"{each['QuestionId']}--{os.path.basename(place)}",
                        "title": title,
                        "question": each["Question"],
                        "context": context,
                        "answers": found,
                    }
                )
    if count and len(missing) == count:
        raise FileNotFoundError(
            f"{path!s} must have its documents beside it. Received: none, such as "
            f"{missing[0]!r}."
        )
    if missing:
        warnings.warn(
            f"{path!s}: {len(missing)} of {count} documents are missing. The first: "
            f"{missing[0]}.",
            stacklevel=6,
        )
    return records


def _documents(each: Config, folder: str) -> Iterator[tuple[str, str]]:
    """Give titles and paths of the documents of a question."""
    for key, name in _EVIDENCE.items():
        for document in each.get(key, ()):
            file = document.get("Filename")
            if file is None:
                continue  # a document that couldn't be downloaded
            parts = file.split("/")
            if os.path.isabs(file) or os.pardir in parts or "\0" in file:
                raise ValueError(
                    f"`Filename` of {each['QuestionId']!r} must be that of a document "
                    f"in {folder!r}. Received: {file!r}."
                )
            yield document.get("Title", file), os.path.join(folder, name, *parts)


def _beginning(path):
    """Read the first words of a document, without the white space around them."""
    words, lines = 0, []
    for line in files.decoded_lines(path):
        found = itertools.islice(re.finditer(r"\S+", line), _WORDS - words)
        ends = [match.end() for match in found]
        words += len(ends)
        if words == _WORDS:
            return "".join([*lines, line[: ends[-1]]]).lstrip()
        lines.append(line)
    return "".join(lines).strip()


def _places(context: str, answers: Any) -> Config | None:
    """Find answers in a context, in the form of SQuAD; `None` if it contains none."""
    found: dict[str, int] = {}
    for answer in answers:
        match = answer_pattern(answer.encode()).search(context)
        if match:
            found.setdefault(match.group(), match.start())
    if not found:
        return None
    # Of answers that begin at the same place, the longest is first.
    pairs = sorted(found.items(), key=lambda pair: (pair[1], -len(pair[0])))
    return {"text": [t for t, _ in pairs], "answer_start": [s for _, s in pairs]}


def from_tfds(record: Config) -> Config:
    """Convert a record of `tensorflow_datasets` to the form of `read`."""
    answer = record.get("answers", record.get("answer"))
    found = {"question": record["question"]}
    if isinstance(answer, dict):  # TriviaQA's
        texts = [answer["value"], *answer["aliases"]]
        # Its test part has "<unk>".
        answer = [*dict.fromkeys(filter(str.strip, texts))] if answer["type"] else None
        found["idx"] = record["question_id"]
    return {**found, "answer": answer if answer is None else [*answer]}
