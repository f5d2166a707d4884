"""Write models' predictions in the files that benchmarks' sites take.

Also write answers to SQuAD's questions, which its official script scores.
"""

import collections
import contextlib
import dataclasses
import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from keras_bertfam import datasets, metrics  # load when they are used: quote types
from keras_bertfam.datasets.task_data import TASKS, TaskData
from keras_bertfam.types import Model, Path
from keras_bertfam.whole_files import write_text, written_aside


def _class_number(task, number):
    return number


def _class_name(task, number):
    return task.label_names[number]


def _lower_name(task, number):
    return task.label_names[number].lower()


def _score(task, value):
    """Write a number, moved into the task's range."""
    return f"{min(max(value, 0.0), task.maximum):.3f}"


def _as_it_is(task, text):
    return text


@dataclasses.dataclass(frozen=True)
class _File:
    """Describe a file for a site: its name, its examples, and how labels are written.

    The examples may be a part of another task. Its folder is then looked for, under
    several names, beside the folder of the task that was learned.
    """

    name: str
    label: Callable[[TaskData, Any], Any]
    split: str = "test"
    task: str | None = None
    folders: tuple[str, ...] = ()


_DIAGNOSTICS = ("ax", "diagnostic", "diagnostics")
FILES: dict[str, tuple[_File, ...]] = {
    "cola": (_File("CoLA.tsv", _class_number),),
    "sst2": (_File("SST-2.tsv", _class_number),),
    "mrpc": (_File("MRPC.tsv", _class_number),),
    "stsb": (_File("STS-B.tsv", _score),),
    "mnli": (
        _File("MNLI-m.tsv", _class_name),
        _File("MNLI-mm.tsv", _class_name, "test_mismatched"),
        _File("AX.tsv", _class_name, task="ax", folders=_DIAGNOSTICS),
    ),
    "qnli": (_File("QNLI.tsv", _class_name),),
    "qqp": (_File("QQP.tsv", _class_number),),
    "rte": (_File("RTE.tsv", _class_name),),
    "wnli": (_File("WNLI.tsv", _class_number),),
    "boolq": (_File("BoolQ.jsonl", _lower_name),),
    "cb": (_File("CB.jsonl", _class_name),),
    "copa": (_File("COPA.jsonl", _class_number),),
    "multirc": (_File("MultiRC.jsonl", _class_number),),
    "record": (_File("ReCoRD.jsonl", _as_it_is),),
    "superglue_rte": (
        _File("RTE.jsonl", _class_name),
        _File("AX-b.jsonl", _class_name, task="ax_b", folders=("axb",)),
        _File("AX-g.jsonl", _class_name, task="ax_g", folders=("axg",)),
    ),
    "wic": (_File("WiC.jsonl", _lower_name),),
    "wsc": (_File("WSC.jsonl", _class_name),),
}
_NAMES = tuple(file.name for files in FILES.values() for file in files)
PREDICTIONS, NULL_ODDS = "predictions.json", "null_odds.json"


def folder_name(name: str) -> str:
    """Normalise the name of a task's folder: `"SST-2"` becomes `"sst2"`."""
    return re.sub(r"(super\W?_?)?glue|\W|_", "", name.lower())


def load_parts(
    task: TaskData,
    data: Path | None,
    limit: int | None,
    report: Callable[[str], object],
) -> "dict[str, datasets.Examples]":
    """Load the parts for which a benchmark's site wants answers.

    Args:
        task: the task that is learned.
        data: its folder, or `None` to download.
        limit: int or `None`. The most examples of each part.
        report: function that takes a line of text. It is told which parts are missing,
            and which have labels: a site's test parts have none, except diagnostics.

    Returns:
        Dict from names of files to `Examples`, in the order of `FILES`. It is empty for
        a task that has no site.
    """
    parts = {}
    for file in FILES.get(task.name, ()):
        of, split = task if file.task is None else TASKS[file.task], file.split
        try:
            place = _place(of, data, file)
            part = datasets.load_examples(of, split, place, limit)
        except FileNotFoundError as error:
            report(f"No {file.name}: {error}")
            continue
        if file.task is None and part.y is not None:
            # ALPS's copy of SST-2, for example, has the validation part there.
            report(
                f"No {file.name}: the labels of {of.name!r}, split {split!r}, are "
                "there, so it isn't the part that the site asks for."
            )
            continue
        parts[file.name] = part
    return parts


def _place(task, data, file):
    """Give the folder of a part: the task's own, or another task's beside it."""
    if data is None or not file.folders:
        return data
    names = [name for each in task.layouts for name in each[file.split]]
    parent = os.path.dirname(os.path.abspath(data))
    beside = [n for n in sorted(os.listdir(parent)) if folder_name(n) in file.folders]
    for folder in (data, *(os.path.join(parent, n) for n in beside)):
        if any(os.path.exists(os.path.join(folder, name)) for name in names):
            return folder
    return data


def remove_old(folder: Path) -> None:
    """Remove the files that an earlier run wrote for a model that was replaced."""
    for name in (*_NAMES, PREDICTIONS, NULL_ODDS):
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(folder, name))


def write(
    task: TaskData,
    parts: "Mapping[str, datasets.Examples]",
    predict: "Callable[[datasets.Examples], list[Any]]",
    folder: Path,
    report: Callable[[str], object],
) -> None:
    """Write the files for a benchmark's site, and score the parts that have labels.

    Args:
        task: the task that was learned.
        parts: see `load_parts`.
        predict: function from `Examples` to predictions, in the form of
            `Examples.targets`.
        folder: where the files go, beside the model.
        report: function that takes a line of text.
    """
    files = {file.name: file for file in FILES.get(task.name, ())}
    for name, examples in parts.items():
        predictions = predict(examples)
        write_text(
            os.path.join(folder, name), _text(files[name], examples, predictions)
        )
        report(f"Wrote {os.path.join(folder, name)}.")
        if examples.y is not None and files[name].task is not None:
            wanted = examples.task.metrics
            scores = metrics.compute_metrics(wanted, examples.y, predictions)
            said = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
            report(f"{examples.task.name}: {said}")


def _text(file, examples, predictions):
    """Write what is in a file of predictions."""
    ids = examples.ids or [str(number) for number in range(len(examples))]
    if file.name.endswith(".tsv"):
        labels = [file.label(examples.task, each) for each in predictions]
        rows = zip(["index", *ids], ["prediction", *labels], strict=True)
        return "".join(f"{number}\t{label}\n" for number, label in rows)
    lines = _LINES.get(examples.task.kind, _plain_lines)(file, examples, predictions)
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _plain_lines(file, examples, predictions):
    for number, prediction in zip(examples.ids, predictions, strict=True):
        yield {"idx": int(number), "label": file.label(examples.task, prediction)}


def _lines_of_questions(file, examples, predictions):
    """Write a line per question: its number, the last but one in an id; the answer."""
    numbers = [
        of_one[0].split("-")[-2] for of_one in examples.by_question(examples.ids)
    ]
    for number, answer in zip(numbers, predictions, strict=True):
        yield {"idx": int(number), "label": file.label(examples.task, answer)}


def _lines_of_passages(file, examples, predictions):
    """Write a line per passage: its questions, each with the labels of its answers."""
    found: dict[int, dict[int, list[Any]]] = {}
    for ids, labels in zip(
        examples.by_question(examples.ids), predictions, strict=True
    ):
        for number, label in zip(ids, labels, strict=True):
            passage, question, answer = map(int, number.split("-"))
            said = {"idx": answer, "label": file.label(examples.task, label)}
            found.setdefault(passage, {}).setdefault(question, []).append(said)
    for passage, questions in found.items():
        answers = [{"idx": k, "answers": said} for k, said in questions.items()]
        yield {"idx": passage, "passage": {"questions": answers}}


_LINES = {"candidates": _lines_of_questions, "answer_sets": _lines_of_passages}


def write_majority(
    name: str,
    data: Path | None,
    folder: Path,
    report: Callable[[str], object],
) -> bool:
    """Write the files of a task with the most frequent class for every example.

    Args:
        name: of the task.
        data: the task's folder. With `None`, nothing is written.
        folder: where the files go; it is made.
        report: function that takes a line of text.

    Returns:
        bool: whether there was data. Missing data is reported.
    """
    task = TASKS[name]
    if data is None:
        return False
    parts = load_parts(task, data, None, report)
    if not parts:
        return False
    try:
        train = datasets.load_examples(task, "train", data)
    except FileNotFoundError as error:
        report(f"{name} is left out: {error}")
        return False
    ((most, _),) = collections.Counter(train.y or ()).most_common(1)
    os.makedirs(folder, exist_ok=True)
    write(task, parts, lambda examples: [most] * len(examples), folder, report)
    said = (task.label_names or ())[most]
    report(f"{name} isn't learned: its files say {said!r} for every example.")
    return True


def write_zip(
    path: Path, folders: Iterable[Path], report: Callable[[str], object]
) -> None:
    """Put the files for a benchmark's site into one zip file, without folders.

    Args:
        path: of the zip file. An earlier run's is removed. Nothing is written if there
            are no files to put into it.
        folders: of the tasks' models.
        report: function that takes a line of text.
    """
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    found = {
        name: os.path.join(folder, name)
        for folder in folders
        if os.path.isdir(folder)
        for name in sorted(os.listdir(folder))
        if name in _NAMES
    }
    if not found:
        return
    with written_aside(path) as part:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, file in found.items():
                archive.write(file, name)
    report(f"Wrote {os.fspath(path)}: {', '.join(found)}.")


def write_answers(
    model: Model,
    examples: "datasets.Examples",
    folder: Path,
    report: Callable[[str], object],
) -> None:
    """Write answers to questions, as SQuAD's official script reads them.

    `predictions.json` has the text for each question's `id`. For a model with a
    `null_threshold` there is also `null_odds.json`, with the probability that a
    question has no answer: the sigmoid of the odds minus the threshold. The threshold
    is already applied to the texts. The script's default threshold, 1, is never
    exceeded, so that it leaves the texts as they are.

    Args:
        model: a `SpanQuestionAnswering`.
        examples: `Examples` with `ids`.
        folder: where the files go, beside the model.
        report: function that takes a line of text.
    """
    answers = model.predict(examples.x, verbose=0)
    said: dict[str, list[Any]] = {PREDICTIONS: [answer["text"] for answer in answers]}
    if model.null_threshold is not None:
        odds = [answer["no_answer_odds"] - model.null_threshold for answer in answers]
        # A sigmoid that takes infinite odds: those of a question for which no span is
        # found.
        said[NULL_ODDS] = [(1 + math.tanh(each / 2)) / 2 for each in odds]
    for name, values in said.items():
        content = dict(zip(examples.ids or (), values, strict=True))
        text = json.dumps(content, ensure_ascii=False, indent=1)
        write_text(os.path.join(folder, name), text + "\n")
        report(f"Wrote {os.path.join(folder, name)}.")
