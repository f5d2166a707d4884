"""Predict for examples with trained tasks, and write texts."""

import contextlib
import inspect
import itertools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

import keras_hub

from keras_bertfam import models, tasks
from keras_bertfam.cli.inputs import SAMPLED_BY
from keras_bertfam.datasets import tables
from keras_bertfam.datasets.files import decoded_lines
from keras_bertfam.datasets.tables import TableRequest
from keras_bertfam.parsing import parse_json
from keras_bertfam.presets import hub, preset_checks
from keras_bertfam.presets.checkpoints import formats
from keras_bertfam.presets.converting.heads import counterparts, task_name
from keras_bertfam.presets.names import list_presets
from keras_bertfam.tasks.generation.defaults import DRAWN_FROM
from keras_bertfam.tasks.generation.nucleus import NucleusSampler
from keras_bertfam.tasks.generation.prompts import as_texts, stop_ids
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.types import Model

BATCH = 256

_LONGEST = 10_000_000  # characters of a line


def load_task(preset: str) -> Model:
    """Load the fine-tuned task of a preset folder.

    Raises:
        ValueError: if there is none.
    """
    saved = preset_checks.read_json(preset, preset_checks.TASK_FILE) or {}
    name = str(saved.get("registered_name")).removeprefix("keras_bertfam>")
    cls = next((cls for cls in _TASKS if cls.__name__ == name), None)
    if cls is None:
        raise ValueError(
            "`preset` must be the directory of a fine-tuned task, one of "
            f"{[cls.__name__ for cls in _TASKS]}. Received: {preset!r}, which has "
            f"{name if saved else 'no task'}."
        )
    return cls.from_preset(preset)


def load_tasks(presets: Sequence[str]) -> Model:
    """Load the fine-tuned task of a preset, or an `Ensemble` of several.

    Raises:
        ValueError: if there is none, or if they don't go together.
    """
    models = [load_task(preset) for preset in presets]
    return models[0] if len(models) == 1 else tasks.Ensemble(models)


def load_model(preset: str) -> Model:
    """Load the task of a checkpoint, or one without a head for a backbone.

    A discriminator without its generator counts as a backbone: a new generator knows
    nothing.

    Args:
        preset: name or folder of a checkpoint.
    """
    published = list_presets().get(preset)
    path = os.fspath(hub.locate(published or preset))
    reader = formats.find_reader(path)
    if reader is not None:
        source = reader.open_source(path)
        if published is not None:
            source = published.complete(source)
        name = task_name(source)
        ours = counterparts().get(str(name))
        if ours is not None and ours.generator and "generator" not in source.parts:
            name = None
    else:
        saved = preset_checks.read_json(path, preset_checks.TASK_FILE) or {}
        name = saved.get("registered_name")
    name = str(name).removeprefix("keras_bertfam>")
    cls = getattr(tasks, name, None) or _headless(preset)
    return cls.from_preset(preset)


def _headless(preset):
    """Give the class of task whose preprocessor lays out rows for a backbone."""
    backbone = models.Backbone.from_preset(preset, load_weights=False)
    if isinstance(backbone, models.EncoderDecoderBackbone):
        return tasks.TextToText
    return tasks.CausalLM if getattr(backbone, "causal", False) else tasks.TextEmbedder


def predict(
    model: Model, files: Sequence[str], text: Sequence[str], lines: TextIO | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the answers of a fine-tuned task.

    Args:
        model: a fine-tuned task, or a `keras_bertfam.tasks.Ensemble`.
        files: paths. A suffix such as `.csv` tells a table, which is read as by
            `keras_bertfam.datasets.load_examples`; other files have one text a line. If
            it is empty, `lines` are read.
        text: names of the columns with the texts, two for pairs. If it is empty, the
            task's usual ones; in CoNLL files, `tokens`. Lines of files that aren't
            tables hold JSON objects if there is more than one column. Blank lines are
            skipped.
        lines: file object, standard input by default.

    Yields:
        For each example a dict: its columns, and the task's predictions.

    Raises:
        ValueError: for a line or table without the columns, or a column with the name
            of an answer.
    """
    usual, answer = _TASKS.get(type(model)) or (model.text_columns, type(model).answers)
    if files and all(map(tables.is_conll, files)):
        usual = ("tokens",)
    columns = [*text] or [*usual]
    for rows in _batches(_rows(files, columns, lines)):
        given = [[row[column] for row in rows] for column in columns]
        for row, said in zip(rows, answer(model, given), strict=True):
            both = row.keys() & said.keys()
            if lost := [name for name in both if row[name] != said[name]]:
                raise ValueError(
                    f"`text` must not be named as an answer is. Received: {lost}."
                )
            yield {**row, **said}


def fill_mask(
    preset: str, files: Sequence[str], top_k: int, lines: TextIO | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the tokens that a masked language model fills into masks.

    Args:
        preset: name or folder of a checkpoint.
        files: paths of files with one text a line. If it is empty, `lines` are read.
        top_k: how many tokens for each mask.
        lines: file object, standard input by default.

    Yields:
        For each text a dict: `text`, and `masks`, which has a list for each mask. Its
        items have a `token` and a `probability`, the most probable first.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = tasks.MaskedLM.from_preset(preset)
    for each in said:
        if "masked_lm_head" in str(each.message):
            raise ValueError(
                f"`preset` must have learnt to fill masks. Received: {preset!r}. "
                f"Loading it warned: {str(each.message).rstrip('.')}."
            )
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    for rows in _batches(_rows(files, ["text"], lines)):
        answers = model.fill_mask([row["text"] for row in rows], top_k)
        for row, slots in zip(rows, answers, strict=True):
            yield {**row, "masks": [_named(slot, "token") for slot in slots]}


def write(answers: Iterable[dict[str, Any]], report: Callable[[str], Any]) -> None:
    """Write each answer as a line of JSON."""
    for answer in answers:
        report(json.dumps(answer, ensure_ascii=False))


def _rows(files, columns, lines):
    if not files:
        given = lines_of_input(lines or sys.stdin)
        yield from _rows_of_lines("standard input", given, columns)
    for path in files:
        if tables.is_file_name(path):
            table = tables.read(path, TableRequest(text=columns))
            for number, record in enumerate(table.records):
                row = {column: record[column] for column in columns}
                for column, value in row.items():
                    if value is None:
                        raise ValueError(
                            f"{table.place(number)}, column {column!r}: expected a "
                            "text. Received: None."
                        )
                yield row
        else:
            yield from _rows_of_lines(path, decoded_lines(path), columns)


def check_line(name: str, number: int, line: str) -> None:
    """Raise a `ValueError` for a line that is too long to be a text."""
    if len(line) > _LONGEST:
        raise ValueError(
            f"{name}, line {number}: expected at most {_LONGEST:,} characters. "
            f"Received: {len(line):,}."
        )


def lines_of_input(lines: Iterable[str]) -> Iterator[str]:
    """Read the lines of standard input.

    Raises:
        ValueError: for text that isn't UTF-8.
    """
    # Python's own decoding depends on the locale, and may let through other bytes.
    rows: Iterable[Any] = getattr(lines, "buffer", lines)
    for number, line in enumerate(rows, 1):
        try:
            line = line.decode() if isinstance(line, bytes) else line
        except UnicodeDecodeError as error:
            raise ValueError(
                f"Standard input must be text in UTF-8. Received, in line {number}: "
                f"{error}."
            ) from error
        yield line.removeprefix("\ufeff") if number == 1 else line


def _rows_of_lines(name, lines, columns):
    for number, line in enumerate(lines, start=1):
        check_line(name, number, line)
        line = line.rstrip("\r\n")
        if not line.strip():
            continue
        row: Any = {columns[0]: line}
        if len(columns) > 1:
            with contextlib.suppress(ValueError):
                row = parse_json(line, nan=True)
        if not isinstance(row, dict) or not {*columns} <= {*row}:
            raise ValueError(
                f"{name}, line {number}: expected a JSON object with {columns}. "
                f"Received: {line!r}."
            )
        yield {column: row[column] for column in columns}


def _batches(rows):
    rows = iter(rows)
    while batch := [*itertools.islice(rows, BATCH)]:
        yield batch


def _named(pairs, name):
    return [{name: value, "probability": float(p)} for value, p in pairs]


def _write(model, given):
    if len(given) > 1:
        raise ValueError(
            "`text` must be one column for a TextToText, which reads one text. "
            f"Received: {len(given)}."
        )
    for text in write_texts(model, given[0]):
        yield {"written": text}


# For each task: its usual columns, and the function that gives the answers.
_TASKS: dict[Any, tuple[tuple[str, ...], Callable[..., Iterator[dict[str, Any]]]]] = {
    **{
        cls: (cls.text_columns, cls.answers)
        for cls in (getattr(tasks, name) for name in tasks.__all__)
        if getattr(cls, "text_columns", ())
    },
    tasks.TextToText: (("text",), _write),
}


def write_texts(model: Model, texts: Sequence[str], batch_size: int = 32) -> list[str]:
    """Write texts by greedy search with a `TextToText`, with the rows of its training.

    Args:
        model: a `TextToText` with a `TextToTextPreprocessor`.
        texts: sequence of strings. Texts longer than a row are cut.
        batch_size: int. Texts that are written at a time.

    Returns:
        A list of strings, one for each.
    """
    preprocessor, positions = model.preprocessor, model.backbone.max_sequence_length
    length = preprocessor.layout.target_length + 1
    length = length if positions is None else min(length, positions)
    written: list[str] = []
    for start in range(0, len(texts), batch_size):
        rows = preprocessor.generate_preprocess([*texts[start : start + batch_size]])
        names = ("token_ids", "padding_mask")
        inputs = {name: rows[f"encoder_{name}"] for name in names}
        # Not as the checkpoint says: its least length may be that of summaries.
        ids = model.generate(inputs, length, "greedy", settings=GenerationSettings())
        written += as_texts(model, ids, stop_ids(model, "auto"), specials=True)
    return written


_PROMPTS_AT_ONCE = 32
USUAL_LENGTH = 64
_SAMPLERS = {
    "random": keras_hub.samplers.RandomSampler,
    "top_k": keras_hub.samplers.TopKSampler,
    "top_p": NucleusSampler,
}


def load_writer(preset: str) -> Model:
    """Load the task of a checkpoint that writes texts.

    Args:
        preset: name or folder of a checkpoint.

    Raises:
        ValueError: for a task that writes no texts, or has no tokenizer.
    """
    model = load_model(preset)
    if not hasattr(model, "generate"):
        raise ValueError(
            "`preset` must be of a task that writes texts. "
            f"Received: {preset!r}, of a {type(model).__name__}."
        )
    if model.preprocessor is None:
        raise ValueError(f"`preset` must have a tokenizer. Received: {preset!r}.")
    return model


def own_sampler(model: Model) -> str:
    """Name a sampler that has the options of a model's own, see its `generation`.

    Args:
        model: what `load_writer` gives.
    """
    if model.generation.get("do_sample"):
        return "top_p"
    return "beam" if model.generation.get("num_beams", 1) > 1 else "greedy"


def prompts_of(
    prompts: Sequence[str], files: Sequence[str], lines: Iterable[str]
) -> Iterator[str]:
    """Read prompts: given ones and lines of files, or else lines of standard input.

    Args:
        prompts: list of str.
        files: paths of files with a prompt a line.
        lines: read if there are no prompts and no files.
    """
    yield from prompts
    named = [(path, decoded_lines(path)) for path in files]
    if not prompts and not files:
        named = [("standard input", lines_of_input(lines))]
    for name, given in named:
        for number, line in enumerate(given, start=1):
            check_line(name, number, line)
            if text := line.rstrip("\r\n"):
                yield text


def generate(
    model: Model,
    prompts: Iterable[str],
    max_length: int | None,
    sampler: str | None,
    options: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """Write texts.

    Args:
        model: what `load_writer` gives.
        prompts: strings.
        max_length: int. The most tokens of a text, see `generate` of the task; `None`
            for the model's own, or 64.
        sampler: name; `None` for the model's own, or `"greedy"`.
        options: arguments of the sampler, by the names in `SAMPLED_BY`, and of
            `GenerationSettings`.

    Yields:
        For each prompt a dict: `prompt`, and `text`, or `texts` if several are asked
        for.
    """
    if max_length is None and not {"max_length", "max_new_tokens"} & {
        *model.generation
    }:
        max_length = USUAL_LENGTH
    if sampler is None and not model.generation:
        sampler = "greedy"
    drawn = sampler is None and model.generation.get("do_sample")
    name = own_sampler(model) if drawn else sampler or ""
    own = SAMPLED_BY.get(name, {})
    known = inspect.signature(tasks.GenerationSettings).parameters
    given = {name: value for name, value in options.items() if name in known}
    settings: Any = given if model.generation else tasks.GenerationSettings(**given)
    arguments = {own[name]: value for name, value in options.items() if name in own}
    if drawn and arguments:  # those of the model, but for the given ones
        usual = (("k", "top_k"), ("p", "top_p"), ("temperature", "temperature"))
        kept = {a: model.generation[b] for a, b in usual if b in model.generation}
        arguments = {"k": DRAWN_FROM, "p": 1.0, **kept, **arguments}
        arguments["k"] = arguments["k"] or None
    chosen = _SAMPLERS[name](**arguments) if arguments else sampler
    if sampler == "greedy":  # which writes one text, whatever the model's own does
        given.setdefault("num_return_sequences", 1)
    count = {**model.generation, **given}.get("num_return_sequences", 1)
    written_as = "texts" if count > 1 else "text"
    batch: list[str] = []

    def written():
        answers = model.generate(batch, max_length, chosen, settings=settings)
        for prompt, answer in zip(batch, answers, strict=True):
            yield {"prompt": prompt, written_as: answer}

    for prompt in prompts:
        batch.append(prompt)
        if len(batch) == _PROMPTS_AT_ONCE:
            yield from written()
            batch.clear()
    if batch:
        yield from written()
