"""Examples of a task, by name or from files, in one form."""

import glob
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from keras_bertfam.arguments import check_number, checked
from keras_bertfam.datasets import files, open_questions, super_glue, tables
from keras_bertfam.datasets.examples import Examples, arrange
from keras_bertfam.datasets.own_tables import load_table, question_records
from keras_bertfam.datasets.tables import TableRequest
from keras_bertfam.datasets.task_data import TASKS, TaskData, get_task
from keras_bertfam.layers import read_documents
from keras_bertfam.types import Path

_SHOWN = 8  # classes that a line names
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
    """Load the examples of a task, or of a table of your own.

    Labels of a table are inferred: strings are classes, numbered as they are sorted
    (`"True"` and `"False"` too), whole numbers, `1.0` among them, are the numbers of
    classes and are kept, other numbers are for regression, lists are tags of lists of
    words, and of texts any number of classes, and dicts of `text` and `answer_start`
    beside two texts are answers. What was inferred is printed in a line; each has an
    argument. `nan`, and among numbers `inf`, is no label. `label_names` of the result
    are for the model, which keeps them. Errors count lines of files from 1, rows
    from 0.

    Args:
        task: name of a task, see `get_task`, or a `TaskData` of your own. Or the
            table: path or list of paths of `.csv`, `.tsv`, `.tab`, `.json` (a list,
            or an object a line), `.jsonl`, `.ndjson`, `.parquet` or `.pq`; with a
            word a line `.conll`, `.bio` or `.iob` (the first column has the words,
            the last the tags) and `.conllu`; a `pandas.DataFrame`; what the
            `datasets` library has.
        split: `"train"`, `"validation"`, `"test"`, and for `"mnli"`
            `"validation_mismatched"` and `"test_mismatched"`. Which part of a
            `datasets.DatasetDict`.
        data: of a task: where local files are: a folder in one of the table's
            layouts; or the path or paths of the files of this split, as TSV, JSON (a
            list, or an object a line), SQuAD's format, CSV or Parquet with its columns,
            CoNLL, CSV if of choices, or open questions as ORQA, DPR or TriviaQA have
            them.
            `None` loads by name with `tensorflow_datasets`, which downloads.
        limit: int or `None`. Only the first so many; of a task with several examples
            for a question, such as MultiRC and ReCoRD, all those of so many questions.
        text: of a table: name of the column with the texts, or a tuple of two, for
            pairs, or for the question and its context; an empty text of a CSV file is
            a text. `None`, in CoNLL's files,
            means `"tokens"`, and the label `"tags"`, or `"upos"` of `.conllu`.
        label: name of the labels' column, or `None` without labels.
        label_names: sequence of strings, the classes in order, such as those of the
            table that a model was trained on; `None` infers them.
        kind: `"classification"`, `"regression"`, `"tagging"`, `"multi_label"` (a list
            of classes for each text, for `TextClassifier(multi_label=True)`),
            `"text_to_text"`, whose labels are texts, or `"question_answering"`, whose
            labels are texts that are in the second column, dicts of `text` and
            `answer_start`, lists of either, or these as JSON, empty where there is no
            answer; `None` infers it, but for `"text_to_text"`. `"tagging"` also reads
            text files of any name as CoNLL.
        delimiter: str between the values of a line. `None` is a tab in `.tsv`, and in
            `.csv` what of `,`, `;`, tab and `|` makes the columns asked for.
        header: names of the columns of a text file without a first line of names.
        quoting: bool. Whether quotation marks enclose values, which may have
            delimiters, ends of lines, and quotation marks twice. `False` takes them
            as they are.
        validation_split: float or `None`. With a share of examples to validate on the
            result is a tuple of two `Examples`, see `Examples.split`.
        seed: int, of `validation_split`.

    Returns:
        `Examples`, or two. Of a task of kind `"text"`: a `tf.data.Dataset` of
        strings.

    Raises:
        ValueError: for an unknown task or split, or files that don't fit.
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
                f"`{unfit[0]}` must be given with a table of your own only, not with "
                f"a task. Received: {unfit[0]}={given[unfit[0]]!r}, task={task!r}."
            )
        examples = _load_task(get_task(task), split, data, limit)
    else:
        if data is not None:
            raise ValueError(
                f"`data` must be `None` where a table comes first. Received: {data!r}."
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
    """Print to the standard error what was inferred from a table."""
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
        # Of MultiRC's records several are of a question; `take` keeps them together.
        whole = limit is None or task.kind == "answer_sets"
        records = _prepared(task, records if whole else records[:limit])
    examples = arrange(task, records)
    if not len(examples):
        raise ValueError(f"{task.name!r}, split {split!r}: no example in it.")
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
        # SuperGLUE's are cut once they are sorted, for some belong together.
        if limit is not None and not task.super_glue:
            dataset = dataset.take(limit)
        records += map(tables.decoded, tfds.as_numpy(dataset))
    # What is prepared there is shuffled. AX-g's pairs are neighbours in its file.
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
    """Find the files of a folder's splits, by the first layout that fits.

    One of which a part to train or to validate on is missing comes last: what it
    trains on may be what another validates on.
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
    """Tell where the files may be instead: in a folder within, or another task's."""
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
    """Find the files of each split of a layout that the folder has all of."""
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
    """Tell whether tables to train and validate on have a column of labels."""
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
        request = TableRequest(task.columns, task.label)
        return question_records(tables.read(path, request), request)
    if task.kind == "text_to_text" and tables.is_column_file(path):
        return tables.read(path, TableRequest(task.columns, task.label)).records
    if task.kind == "multiple_choice" and str(path).endswith(".csv"):
        return files.read_csv(path)
    json = task.json_lines or str(path).endswith((".json", ".jsonl"))
    if json or task.kind in ("multiple_choice", "relations"):
        return files.read_json(path)
    if task.kind in ("tagging", "parsing"):
        return files.read_conll(path, task.header or (*task.columns, task.label))
    return _read_table(task, path, broken)
