"""Fine-tune by recipe: a grid, early stopping, and the median over seeds."""

import collections
import functools
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_bertfam import datasets, tasks
from keras_bertfam.cli import finetuning_heads, finetuning_text, glue, submissions
from keras_bertfam.cli.inputs import check_something, check_without_own
from keras_bertfam.datasets.task_data import TaskData, get_task
from keras_bertfam.presets import folders, preset_checks
from keras_bertfam.tasks.recipes import FineTuningRecipe
from keras_bertfam.types import Model, Path


def train(
    model: Model,
    train_set: datasets.Examples,
    validation_set: datasets.Examples,
    settings: tuple[float, int, int],
    recipe: FineTuningRecipe,
    seed: int = 0,
    jit: bool | str = "auto",
    way: Any = finetuning_heads,
) -> tuple[dict[str, float], int, int]:
    """Train with early stopping on the first metric of the task.

    Args:
        model: a task. It ends up with the weights of the best epoch.
        train_set: `Examples`.
        validation_set: `Examples`.
        settings: tuple of learning rate, batch size and epochs.
        recipe: `FineTuningRecipe`.
        seed: int, of the order of examples.
        jit: `jit_compile` of `keras.Model.compile`.
        way: the module `finetuning_heads` or `finetuning_text`, which made the model.

    Returns:
        The best epoch's metrics, its number, and the number of epochs trained.
    """
    learning_rate, batch_size, epochs = settings
    x, y = way.prepare(model, train_set)
    model.preprocessor.seed = seed
    model.compile(way.optimizer(model, learning_rate, recipe), jit_compile=jit)
    names = train_set.task.metrics
    watched = f"val_{names[0]}"
    scores = way.Scores(validation_set, batch_size=batch_size)
    stop = keras.callbacks.EarlyStopping(
        watched, mode="max", patience=2, restore_best_weights=True
    )
    history = model.fit(
        x,
        y,
        batch_size=batch_size,
        epochs=epochs,
        callbacks=[scores, stop],
        verbose=1 if sys.stdout.isatty() else 2,
    ).history
    best = max(range(len(history[watched])), key=history[watched].__getitem__)
    if "val_null_threshold" in history:
        model.null_threshold = history["val_null_threshold"][best]
    scores = {name: history[f"val_{name}"][best] for name in names}
    return scores, best + 1, len(history[watched])


def finetune(
    task: str | TaskData | None,
    preset: str,
    data: Any = None,
    output: Path | None = None,
    learning_rates: Sequence[float] | None = None,
    batch_sizes: Sequence[int] | None = None,
    epochs: Sequence[int] | None = None,
    seeds: Sequence[int] = (0,),
    sequence_length: int | None = None,
    limit: int | None = None,
    load_weights: bool = True,
    report: Callable[[str], object] = print,
    jit: bool | str = "auto",
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    validation: Any = None,
    validation_split: float = 0.1,
    packed: bool = False,
    as_text: bool = False,
    search: bool | None = None,
) -> dict[str, Any]:
    """Fine-tune by the recipe of a preset's family.

    A table of your own is trained on once, with the middle of the published grid. A
    search, the default for a named task, trains every point of the grid with every
    seed. The point with the best median of the first metric counts. The model of the
    best single run is saved.

    Predictions are saved beside the model. For GLUE and SuperGLUE, if the data has test
    parts, they are the files that the benchmarks' sites take. For SQuAD they are the
    answers to the validation questions, which its official script reads. They aren't
    written with `as_text`, whose texts have spaces around punctuation.

    Args:
        task: name of a task, see `get_task`; `"all-glue"` or `"all-superglue"` for all
            tasks of a benchmark; `None` for a table of your own.
        preset: str.
        data: the task's folder, see `keras_bertfam.datasets.load_examples`. Without a
            `task`, your table. For a benchmark, a folder with a folder for each task.
        output: folder for the best model, or `None`. For a benchmark, a folder for the
            models and for `glue.md`, `glue.json` and `glue.zip` (or `superglue.md` and
            so on).
        learning_rates: sequence of floats, each of which is tried. `None` for the
            recipe's.
        batch_sizes: sequence of ints, or `None`, likewise.
        epochs: sequence of ints, or `None`, likewise.
        seeds: sequence of ints. Each setting is trained with each seed.
        sequence_length: int or `None`.
        limit: int or `None`. The most examples of each split, see `load_examples`.
        load_weights: bool.
        report: function that takes a line of text.
        jit: `jit_compile` of `keras.Model.compile`.
        text, label: columns of the table, see `load_examples`.
        validation: a table with the same columns, to validate on. `None` takes a
            share of `data`.
        validation_split: float, the share of `data` to validate on.
        packed: bool. Whether examples share rows in training; see
            `TextClassifierPreprocessor`.
        as_text: bool. Whether a `TextToText` learns to write the answers, see
            `keras_bertfam.datasets.as_text_pairs`; labels of a table of your own are
            the texts to be written.
        search: bool. Whether the whole published grid is trained, or only its middle
            (`FineTuningRecipe.middle`). `None` searches for a task that has a name.

    Returns:
        A dict with the medians of the metrics and the `settings` that reached them. For
        a benchmark, a dict with the `average`, the `tasks` and what is `missing`.
    """
    way: Any = finetuning_text if as_text else finetuning_heads
    chosen = (learning_rates, batch_sizes, epochs)
    if search and all(chosen):
        raise ValueError(
            "`search` must be left out where learning rates, batch sizes and epochs "
            f"are all given. Received: {learning_rates}, {batch_sizes}, {epochs}."
        )
    if isinstance(task, str) and task in glue.BENCHMARKS:
        one = functools.partial(
            finetune,
            preset=preset,
            learning_rates=learning_rates,
            batch_sizes=batch_sizes,
            epochs=epochs,
            seeds=seeds,
            sequence_length=sequence_length,
            limit=limit,
            load_weights=load_weights,
            report=report,
            jit=jit,
            text=text,
            label=label,
            validation=validation,
            packed=packed,
            as_text=as_text,
            search=search,
        )
        why_not = functools.partial(
            _why_not, way=way, packed=packed, limit=limit, tests=output is not None
        )
        benchmark = glue.BENCHMARKS[task]
        return glue.finetune_all(one, why_not, data, output, report, benchmark)
    if output is not None:
        folders.check_preset_destination(output)
    own = {"text": text, "label": label, "validation": validation}
    others: dict[str, Any] = {}
    tests: dict[str, Any] = {}
    if task is None:
        train_set, validation_set = load_own(
            data, **own, share=validation_split, limit=limit, kind=way.OWN_KIND
        )
    else:
        check_without_own(task, own)
        train_set, validation_set, others = load_parts(
            _supported(task, way), data, limit, report
        )
        if output is not None:
            tests = submissions.load_parts(train_set.task, data, limit, report)
    facts = train_set.task
    recipe, longest = _recipe_of(preset, facts, way)
    if sequence_length is None and recipe.sequence_length is not None:
        sequence_length = min(recipe.sequence_length, longest)
    if sequence_length is not None and sequence_length > longest:
        raise ValueError(
            f"`sequence_length` must be at most {longest}, the positions of "
            f"{preset!r}. Received: {sequence_length}."
        )
    if search is None:
        search = task is not None
    points = _points(recipe if search else recipe.middle(), chosen)
    report(_announced(recipe, points, chosen, len(seeds), search))

    def run(settings, seed, is_first):
        """Train a new model; give it with its scores, and a line about its epochs."""
        keras.utils.set_random_seed(seed)
        model = way.make_model(
            facts, preset, load_weights, sequence_length, recipe.end_head, packed
        )
        if is_first and (warned := _untrained_positions(preset, model)) is not None:
            report(warned)
        scores, epoch, trained = train(
            model, train_set, validation_set, settings, recipe, seed, jit, way
        )
        scores |= _scores_of(others, model, way)
        return model, scores, f"epoch {epoch} of {trained} trained"

    def keep(model, scores):
        if output is not None:
            submissions.remove_old(output)  # predictions of another model
            model.save_to_preset(output, card=_card(task, scores))

    median, settings = _best_of(points, seeds, run, keep, facts.metrics[0], report)
    if (warned := _learned_nothing(validation_set, median)) is not None:
        report(warned)
    if output is not None and task is not None:
        _write_predictions(output, validation_set, tests, way, report)
    return {**median, "settings": settings}


def _best_of(points, seeds, run, keep, metric, report):
    """Train with all settings and seeds, and tell which settings are the best.

    Args:
        points: list of settings: tuples of learning rate, batch size and epochs.
        seeds: sequence of ints.
        run: function of settings, a seed and whether this is the first run. It returns
            a model, its scores and a line of text.
        keep: function of a model and its scores. It is called for each model that is
            better than those before.
        metric: str, the score to compare.
        report: function that takes a line of text.

    Returns:
        The median scores of the best settings, and these settings.
    """
    medians, best_run = {}, None
    done, began = 0, time.perf_counter()
    for settings in points:
        runs = []
        for seed in seeds:
            start = time.perf_counter()
            model, scores, when = run(settings, seed, is_first=not done)
            seconds = time.perf_counter() - start
            name = f"{_described(settings)}, seed {seed}"
            report(f"{name}: {formatted(scores)} ({when}), {seconds:.0f} s")
            runs.append(scores)
            done += 1
            each = (time.perf_counter() - began) / done
            if left := len(points) * len(seeds) - done:
                report(f"Run {done} of {done + left}, {_minutes(left * each)} left.")
            if best_run is None or _nan_last(scores[metric]) > best_run:
                best_run = _nan_last(scores[metric])
                keep(model, scores)
        medians[settings] = {k: _median([one[k] for one in runs]) for k in runs[0]}
    best = max(medians, key=lambda settings: _nan_last(medians[settings][metric]))
    name = f"best, median of {len(seeds)}: {_described(best)}"
    report(f"{name}: {formatted(medians[best])}")
    return medians[best], best


def _write_predictions(output, validation_set, tests, way, report):
    """Write the saved model's predictions in the form that official scoring reads."""
    facts = validation_set.task
    questions = facts.kind == "question_answering" and way is finetuning_heads
    if not tests and not questions:
        return
    model = way.CLASSES[facts.kind].from_preset(output)
    if questions:
        submissions.write_answers(model, validation_set, output, report)
    predict = functools.partial(way.predict, model)
    submissions.write(facts, tests, predict, output, report)


def _learned_nothing(examples, scores):
    """Say it if always giving the most frequent class would be as good, else `None`."""
    if examples.task.kind != "classification" or "accuracy" not in scores:
        return None
    answer, count = collections.Counter(examples.y).most_common(1)[0]
    share = count / len(examples.y)
    if scores["accuracy"] > share:
        return None
    names = examples.label_names
    named = answer if isinstance(answer, str) or not names else names[int(answer)]
    return (
        f"Always answering {named!r} would have an accuracy of {share:.4f}: this model "
        "hasn't learned to tell classes apart. A model of a few million weights "
        "usually needs a higher rate, such as --learning-rate 1e-3, and more epochs."
    )


def _untrained_positions(preset, model):
    """Say it if rows are longer than those the preset was trained on, else `None`."""
    if getattr(model.backbone, "max_sequence_length", None) is None:
        return None  # positions count relative to each other
    saved = preset_checks.read_json(preset, preset_checks.PREPROCESSOR_FILE) or {}
    before = (saved.get("config") or {}).get("sequence_length")
    length = model.preprocessor.sequence_length
    if before is None or length <= before:
        return None
    return (
        f"Rows have {length} tokens, and those of {preset!r} had {before}: the later "
        f"positions weren't trained. --sequence-length {before} leaves them out."
    )


_FACTORS = ("rates", "batch sizes", "numbers of epochs", "seeds")


def _points(recipe, given):
    """Give the settings to train by: a recipe's, or the values that were given."""
    published = zip(*recipe.grid(), strict=True)
    values = [
        [*dict.fromkeys(own or theirs)]
        for own, theirs in zip(given, published, strict=True)
    ]
    return [*itertools.product(*values)]


def _announced(recipe, points, given, seeds, search):
    """Say what will be trained, how often, and where the settings come from."""
    tried = [[*dict.fromkeys(values)] for values in zip(*points, strict=True)]
    names = ("learning rate", "batch size", "epochs")
    settings = ", ".join(
        f"{name} {' or '.join(f'{value:g}' for value in values)}"
        for name, values in zip(names, tried, strict=True)
    )
    counts = [*map(len, tried), seeds]
    factors = [
        f"{count} {name}"
        for count, name in zip(counts, _FACTORS, strict=True)
        if count > 1
    ]
    product = f" ({' x '.join(factors)})" if len(factors) > 1 else ""
    line = f"{_runs(len(points) * seeds)}{product}: {settings}."
    if all(given):
        return line
    what, whole = "What isn't given" if any(given) else "This", len(recipe.grid())
    if whole == 1:
        return f"{line} {what} is as published ({recipe.source})."
    part = "" if search else "the middle of "
    line = f"{line} {what} is {part}the published grid ({recipe.source})."
    if search or any(given):
        return line
    return f"{line} With --search all of it: {_runs(whole * seeds)}."


def _runs(count):
    return "1 run" if count == 1 else f"{count} runs"


def _minutes(seconds):
    """Say a time in round numbers."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"about {minutes} minutes" if minutes < 90 else f"about {minutes / 60:.0f} h"


def _nan_last(score):
    return float("-inf") if math.isnan(score) else score


def _median(scores):
    """Compute the median, where NaN is less than all numbers."""
    found = statistics.median(map(_nan_last, scores))
    return found if math.isfinite(found) else math.nan


def _supported(task, way):
    task = get_task(task)
    if task.kind not in way.CLASSES:
        written = task.kind in ("text_to_text", "open_questions")
        as_text = "; with `as_text` it can be learned" if written else ""
        raise ValueError(
            f"`task` must be one of kind {', '.join(way.CLASSES)}. "
            f"Received: {task.name!r}, of kind {task.kind!r}{as_text}."
        )
    if task.patterns:
        raise ValueError(
            "`task` must be one whose answers are texts. Received: "
            f"{task.name!r}, whose answers are patterns to score by."
        )
    if not task.can_be_learned:
        raise ValueError(
            "`task` must be one with examples to train and to validate on. "
            f"Received: {task.name!r}, which has {', '.join(task.splits)} only."
        )
    return task


def _why_not(task, data, way, packed, limit, tests):
    """Tell why a task can't be learned, after all of its files have been read."""
    try:
        facts = _supported(task, way)
        if way is finetuning_heads:
            way.check_packed(facts, packed)
    except ValueError as error:
        return str(error)
    # Downloaded files have no errors, so one example is enough.
    limit = 1 if data is None else limit
    try:
        load_parts(facts, data, limit, report=lambda line: None)
    except FileNotFoundError as error:
        return str(error)
    if tests:
        submissions.load_parts(facts, data, limit, report=lambda line: None)
    return None


def _card(task, scores):
    """Give the contents of the model's card, with the scores of the best epoch."""
    name = getattr(task, "name", task)
    told = {} if name is None else {"description": f"Fine-tuned on {name}."}
    return {**told, "scores": scores}


def _scores_of(parts, model, way):
    return {
        f"{name}_{part}": value
        for part, examples in parts.items()
        for name, value in way.Scores(examples).compute(model).items()
    }


def _recipe_of(preset, task, way=finetuning_heads):
    """Find the recipe, and the longest row that the preset's backbone takes."""
    backbone_cls = way.CLASSES[task.kind].backbone_cls
    backbone = backbone_cls.from_preset(preset, load_weights=False)
    record, width = backbone.record, backbone.hidden_dim
    family = type(backbone).__name__ if record is None else record.name
    longest = getattr(backbone, "max_sequence_length", None) or sys.maxsize
    layers = getattr(backbone, "num_layers", None)
    return tasks.fine_tuning_recipe(family, task.name, width, layers), longest


def formatted(scores: dict[str, float]) -> str:
    """Write metrics in a line."""
    return ", ".join(f"{name} {value:.4f}" for name, value in scores.items())


def _described(settings):
    rate, batch_size, epochs = settings
    counted = "1 epoch" if epochs == 1 else f"up to {epochs} epochs"
    return f"learning rate {rate:g}, batch size {batch_size}, {counted}"


def load_own(
    data: Any,
    text: str | Sequence[str] | None,
    label: str | None,
    validation: Any,
    share: float,
    limit: int | None,
    kind: str | None = None,
) -> tuple[datasets.Examples, datasets.Examples]:
    """Load examples of a user's table: to train on, and to validate on.

    Args:
        data: the table, see `keras_bertfam.datasets.load_examples`.
        text, label: its columns.
        validation: a table to validate on, or `None` for a share of `data`.
        share: float, the share of `data` to validate on.
        limit: int or `None`. The most examples of each.
        kind: str or `None`, see `load_examples`.

    Returns:
        Tuple of two `Examples`.
    """
    check_something(None, data)
    columns: dict[str, Any] = {"text": text, "label": label, "limit": limit}
    columns["kind"] = kind
    if validation is None:
        parts = datasets.load_examples(data, **columns, validation_split=share)
    else:
        train = datasets.load_examples(data, **columns)
        columns |= {"label_names": train.label_names, "kind": train.task.kind}
        parts = train, datasets.load_examples(validation, **columns)
    if None in [part.y for part in parts]:
        raise ValueError(
            f"`label` must be a column with labels. Received: label={label!r}."
        )
    return parts


def load_parts(
    task: TaskData,
    data: Any,
    limit: int | None,
    report: Callable[[str], object],
) -> tuple[datasets.Examples, datasets.Examples, dict[str, datasets.Examples]]:
    """Load a task's examples to train on, to validate on, and of its other parts.

    MNLI's mismatched examples are such another part.

    Args:
        task: `keras_bertfam.datasets.task_data.TaskData`.
        data: folder, or `None` to download.
        limit: int or `None`. The most examples of each.
        report: function that takes a line of text. It is told which parts are missing.

    Returns:
        Tuple of two `Examples` and a dict of others.
    """
    if data is not None and not os.path.isdir(data):
        raise ValueError(
            "`data` must be a folder with files to train and to validate on. "
            f"Received: {os.fspath(data)!r}."
        )
    parts = {}
    for split in task.splits:
        name = split.removeprefix("validation_")
        if split in ("train", "validation") or name != split:
            try:
                parts[name] = datasets.load_examples(task, split, data, limit)
            except FileNotFoundError as error:
                if name == split:
                    raise
                report(f"{split!r} isn't scored: {error}")
    for name, part in parts.items():
        if part.y is None:
            raise ValueError(
                f"{task.name!r}, split {name!r}, must have labels in {task.label!r}. "
                "Received: none."
            )
    return parts.pop("train"), parts.pop("validation"), parts
