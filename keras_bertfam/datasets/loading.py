"""Load examples of a task, by name or from files, in one form."""

import glob
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from keras_bertfam.arguments import check_number, checked
from keras_bertfam.datasets import files, open_questions, super_glue, tables
from keras_bertfam.datasets.examples import NUMBERS, Examples, arrange
from keras_bertfam.datasets.own_tables import load_table, question_records
from keras_bertfam.datasets.tables import TableRequest
from keras_bertfam.datasets.task_data import TASKS, TaskData, get_task
from keras_bertfam.layers import read_documents
from keras_bertfam.text_files.sources import suffix_of
from keras_bertfam.types import Path

_SHOWN = 8  # how many classes the printed line names
_LABELLED = {"train", "validation"}


@checked
def load_examples(
    task: Any,
    split: str = "train",
    data: Path | Sequence[Path] | None = None,
    limit: int | None = None,
    *,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    label_names: Sequence[str] | None = None,
    kind: str | None = None,
    delimiter: str | None = None,
    header: Sequence[str] = (),
    quoting: bool = True,
    validation_split: float | None = None,
    seed: int = 0,
) -> Any:
    """Load the examples of a task, or of your own table.

    The kind of a table's labels is inferred:

    - strings (also `"True"` and `"False"`) are classes, numbered in sorted order;

    - whole numbers, also `1.0`, are the numbers of classes;

    - other numbers are for regression;

    - lists are tags if the inputs are lists of words, and otherwise sets of classes;

    - dicts of `text` and `answer_start`, with two texts as inputs, are answers.

    A line is printed with everything that was inferred; each of these has an argument
    that sets it. `nan` isn't a label, and neither is `inf` among numbers. Give the
    result's `label_names` to the model, which keeps them. Errors count lines of files
    from 1, and rows from 0.

    Args:
        task: name of a task, see `get_task`, or your own `TaskData`. Or a table: a path
            or a list of paths of `.csv`, `.tsv`, `.tab`, `.json` (a list, or one object
            a line), `.jsonl`, `.ndjson`, `.parquet` or `.pq`; of files with one word a
            line, `.conll`, `.bio` or `.iob` (the first column has the words, the last
            the tags) or `.conllu`; a `pandas.DataFrame`; or an object of the `datasets`
            library.
        split: `"train"`, `"validation"`, `"test"`, and for `"mnli"`
            `"validation_mismatched"` and `"test_mismatched"`; or the part of a
            `datasets.DatasetDict`.
        data: for a task, the place of local files: a folder with one of the known
            layouts; or the path or paths of the files of this split. These are TSV,
            JSON (a list, or one object a line), SQuAD's format, CSV or Parquet with the
            task's columns, CoNLL, CSV for choices, or open questions in the formats of
            ORQA, DPR or TriviaQA. `None` loads the task by name with
            `tensorflow_datasets`, which downloads it.
        limit: int or `None`. The most examples to load, the first ones. If a task has
            several examples for a question, as MultiRC and ReCoRD do, the most
            questions.
        text: for a table, the name of the column with the texts, or a tuple of two: for
            pairs, or for a question and its context. An empty text in a CSV file counts
            as a text. For CoNLL's files, `None` means `"tokens"`, with the label
            `"tags"`, or `"upos"` in `.conllu`.
        label: name of the labels' column; `None` for no labels.
        label_names: sequence of strings, the classes in order, for example those of the
            table that a model was trained on. `None` infers them.
        kind: `"classification"`, `"regression"`, `"tagging"`, `"multi_label"` (a list
            of classes for each text, for `TextClassifier(multi_label=True)`),
            `"text_to_text"`, whose labels are texts, or `"question_answering"`. Labels
            of the last are texts contained in the second column, dicts of `text` and
            `answer_start`, lists of either, or these as JSON; an empty label means that
            there is no answer. `None` infers every kind except `"text_to_text"`.
            `"tagging"` also reads text files of any name as CoNLL.
        delimiter: str between the values of a line. `None` means a tab in `.tsv`; in
            `.csv`, the one of `,`, `;`, tab and `|` that gives the wanted columns.
        header: names of the columns of a text file without a first line of names.
        quoting: bool. Whether quotation marks enclose values. A value may then contain
            delimiters, ends of lines, and doubled quotation marks. `False` reads
            quotation marks as plain characters.
        validation_split: float or `None`. The share of examples to validate on. The
            result is then a tuple of two `Examples`, see `Examples.split`.
        seed: int, the seed for `validation_split`.

    Returns:
        `Examples`, or a tuple of two. For a task of kind `"text"`, a `tf.data.Dataset`
        of strings.

    Raises:
        ValueError: for an unknown task or split, or files of another format.
        FileNotFoundError: if files are missing.
        ImportError: for a Parquet file without pyarrow.

    Example:

    ```python
    train = keras_bertfam.datasets.load_examples("sst2", "train", "data/sst2")
    train.x[0], train.y[0]
    train, validation = keras_bertfam.datasets.load_examples(
        "my.csv", text="review", label="sentiment", validation_split=0.1)
    train.label_names  # ("negative", "positive")
    pairs = keras_bertfam.datasets.load_examples(
        "pairs.jsonl", text=("premise", "hypothesis"), label="label")
    ```
    """
    if limit is not None:
        check_number("limit", limit, 1)
    named = isinstance(task, str) and not tables.is_file_name(task)
    if isinstance(task, TaskData) or (named and text is kind is None):
        given: dict[str, Any] = {
            "label": label,
            "label_names": label_names,
            "kind": kind,
            "text": text,
            "delimiter": delimiter,
            "header": header or None,
            "quoting": None if quoting else quoting,
        }
        unfit = [name for name, value in given.items() if value is not None]
        if unfit:
            raise ValueError(
                f"`{unfit[0]}` must be given only with your own table, not with a "
                f"task. Received: {unfit[0]}={given[unfit[0]]!r}, task={task!r}."
            )
        examples = _load_task(get_task(task), split, data, limit)
    else:
        if data is not None:
            raise ValueError(
                "`data` must be `None` if the first argument is a table. Received: "
                f"{data!r}."
            )
        tagging = kind == "tagging"
        implied = tables.label_of_conll(task) or ("tags" if tagging else None)
        if text is None and implied is not None:
            text, label = "tokens", label or implied
        listed: Any = text if isinstance(text, (list, tuple)) else [text]
        columns = [name for name in listed if name is not None]
        request = TableRequest(
            columns, label, split, tagging, delimiter, header, quoting
        )
        examples = load_table(task, request, label_names, kind)
        _print_inferred(examples, request, label_names, kind)
        examples = examples if limit is None else examples.take(limit)
    if validation_split is None:
        return examples
    if not isinstance(examples, Examples):
        raise ValueError(
            "`validation_split` must be `None` for text without labels. Received: "
            f"{validation_split}."
        )
    return examples.split(validation_split, seed)


def _print_inferred(examples, request, label_names, kind):
    """Print what was inferred from a table to the standard error."""
    inferred = [f"delimiter={delimiter!r}" for delimiter in sorted(request.delimiters)]
    if request.label is not None and kind is None:
        inferred.append(f"kind={examples.task.kind!r}")
    names = examples.task.label_names
    if label_names is None and names is not None:
        more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        inferred.append(f"label_names={[*names[:_SHOWN]]}{more}")
    if inferred:
        count = f"{examples.task.name}: {len(examples)} examples"
        print(f"{count}. Inferred: {', '.join(inferred)}.", file=sys.stderr)


def _load_task(task, split, data, limit):
    if task.kind == "text":
        return _load_text(task, split, data, limit)
    if data is None:
        records = _from_tfds(task, split, limit)
        if task.kind == "open_questions":
            records = [*map(open_questions.from_tfds, records)]
    else:
        broken: list[str] = []
        paths = _paths(task, split, data)
        if task.parallel:
            records = files.read_parallel(paths, (*task.columns, task.label))
        else:
            records = [each for path in paths for each in _read(task, path, broken)]
        if broken:
            warnings.warn(
                f"{task.name!r}, split {split!r}: {len(broken)} broken rows are left "
                f"out. The first: {broken[0]}.",
                stacklevel=4,
            )
    if task.super_glue:
        # Several of MultiRC's records belong to a question; `take` keeps them together.
        whole = limit is None or task.kind == "answer_sets"
        records = _prepared(task, records if whole else records[:limit])
    examples = arrange(task, records)
    if not len(examples):
        raise ValueError(f"{task.name!r}, split {split!r}: there is no example in it.")
    return examples if limit is None else examples.take(limit)


def _prepared(task, records):
    prepared = []
    for number, record in enumerate(records, 1):
        try:
            prepared += super_glue.prepare(task.name, record)
        except ValueError as error:
            where = f"{task.name!r}, record {number} of {len(records)}"
            raise ValueError(f"{where}: {error}") from error
    return prepared


def _load_text(task, split, data, limit):
    if data is None:
        name = _split_name(task, split)
        (column,) = task.columns
        dataset = read_documents(f"tfds:{task.source[0]}", name, feature=column)
    else:
        dataset = read_documents(data)
    return dataset if limit is None else dataset.take(limit)


def _split_name(task, split):
    if split not in task.splits:
        raise ValueError(
            f"`split` must be one of {sorted(task.splits)} for {task.name!r}. "
            f"Received: {split!r}."
        )
    return task.splits[split]


def _from_tfds(task, split, limit):
    if not task.source:
        raise ValueError(
            f"{task.name!r} isn't in tensorflow_datasets: pass `data`, the folder "
            f"with {_described(task, split)}."
        )
    import tensorflow_datasets as tfds

    name = _split_name(task, split)
    records = []
    for source in task.source:
        dataset = tfds.load(source, split=name)
        # SuperGLUE's records are cut after sorting, because some belong together.
        if limit is not None and not task.super_glue:
            dataset = dataset.take(limit)
        records += map(tables.decoded, tfds.as_numpy(dataset))
    # `tensorflow_datasets` shuffles its data, but AX-g's pairs are neighbours in the
    # file.
    if all(
        isinstance(k, int) for record in records for k in super_glue.numbers(record)
    ):
        records.sort(key=super_glue.numbers)
    return records


def _described(task, split):
    return " or ".join(
        ", ".join(layout[split]) for layout in task.layouts if split in layout
    )


def _paths(task, split, data):
    """List the files of a split."""
    if not isinstance(data, (str, os.PathLike)):
        paths = [os.fspath(path) for path in data]
    elif not os.path.isdir(data):
        paths = [os.fspath(data)]
    else:
        return _layout(task, split, os.fspath(data))[split]
    missing = [path for path in paths if not os.path.isfile(path)]
    if missing or not paths:
        raise FileNotFoundError(f"No such file: {', '.join(missing) or 'none given'}.")
    return paths


def _layout(task, split, folder):
    """Find the files of a folder's splits, by the first layout that the folder has.

    Layouts without a part to train or to validate on come last: their training part may
    be another layout's validation part.
    """
    found = [(layout, _files_there(layout, folder)) for layout in task.layouts]
    found.sort(key=lambda pair: bool(_LABELLED & pair[0].keys() - pair[1].keys()))
    for _, there in found:
        if split in there and _has_labels(task, there):
            return there
    if not any(split in there for _, there in found):
        raise FileNotFoundError(
            f"`data` must be the folder of {task.name!r}, with "
            f"{_described(task, split) or 'other splits'} for its split {split!r}. "
            f"Received: {folder!r}, which has {_listed(folder)}"
            f"{_near_by(task, folder)}."
        )
    raise FileNotFoundError(
        f"`data` must be a folder whose files to train and to validate on have labels "
        f"in {task.label!r} for {task.name!r}. Received: {folder!r}, whose files have "
        "none."
    )


def _listed(folder):
    names = sorted(os.listdir(folder))
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"{', '.join(names[:6]) or 'nothing'}{more}"


def _near_by(task, folder):
    """Say where the files may be instead, or which other task's files they are."""
    for path in sorted(glob.glob(f"{glob.escape(folder)}/*/")):
        if _is_whole(task, path):
            return f"; they are in {os.path.normpath(path)!r}"
    others = [n for n, each in TASKS.items() if _is_whole(each, folder)]
    return f", the files of {others[0]!r}" if len(others) == 1 else ""


def _is_whole(task, folder):
    """Tell whether a folder has all files to train and to validate on."""
    return any(
        _LABELLED <= _files_there(layout, folder).keys() for layout in task.layouts
    )


def _files_there(layout, folder):
    """Find the files of each split of a layout for which the folder has all files."""
    found = {
        name: [
            path
            for pattern in patterns
            for path in sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))
            or [None]
        ]
        for name, patterns in layout.items()
    }
    return {name: paths for name, paths in found.items() if None not in paths}


def _has_labels(task, found):
    """Tell whether the tables to train and to validate on have a column of labels."""
    if task.kind not in ("classification", "regression") or task.json_lines:
        return True
    return all(
        task.label in record
        for split in _LABELLED
        for path in found.get(split, ())
        for record in _read_table(task, path, [], limit=2)
    )


def _read_table(task, path, broken, limit=None):
    broken = broken if task.skip_broken_rows else None
    columns, header, renamed = task.columns, task.header, task.renamed
    return files.read_table(path, columns, header, renamed, limit, broken)


def _read(task, path, broken):
    if task.super_glue:
        return super_glue.read(task.name, path)
    if task.kind == "open_questions":
        return open_questions.read(path)
    if task.evidence:
        return open_questions.read_with_evidence(path)
    if task.kind == "question_answering":
        if not tables.is_column_file(path):
            return files.read_squad(path)
        request = TableRequest(task.columns, task.label, optional=("id", "title"))
        return question_records(tables.read(path, request), request)
    if task.kind == "text_to_text" and tables.is_column_file(path):
        return tables.read(path, TableRequest(task.columns, task.label)).records
    if task.kind == "multiple_choice" and suffix_of(path) == ".csv":
        return files.read_csv(path)
    one_label = task.kind in ("classification", "regression")
    if one_label and tables.has_columns_without_tabs(path):
        # A test part has no labels.
        optional = [name for name in (task.label, *NUMBERS) if name is not None]
        return tables.read(path, TableRequest(task.columns, optional=optional)).records
    json = task.json_lines or suffix_of(path) in (".json", ".jsonl", ".ndjson")
    if json or task.kind in ("multiple_choice", "relations"):
        return files.read_json(path)
    if task.kind in ("tagging", "parsing"):
        return files.read_conll(path, task.header or (*task.columns, task.label))
    return _read_table(task, path, broken)
