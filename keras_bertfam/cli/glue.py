"""Fine-tune on all tasks of GLUE or SuperGLUE, and average their scores."""

import contextlib
import dataclasses
import json
import os
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from keras_bertfam.cli import submissions
from keras_bertfam.datasets.task_data import TASKS
from keras_bertfam.presets import folders
from keras_bertfam.types import Path
from keras_bertfam.whole_files import write_text


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """Describe a benchmark of several tasks.

    Attributes:
        title: str, what people call it.
        file: str, the name of its table and of the files for its site, without the
            ending.
        official: dict from names of tasks to their official metrics.
        by_majority: name of a task that isn't learned, or `None`. Its file has the most
            frequent class of its training examples everywhere.
        note: str, how its average is computed.
    """

    title: str
    file: str
    official: dict[str, tuple[str, ...]]
    by_majority: str | None
    note: str


# Wang et al., 2019, table 1; both parts of MNLI count. WNLI is left out, as in table 1
# of BERT's paper: its validation part was made to mislead.
OFFICIAL = {
    "cola": ("matthews",),
    "sst2": ("accuracy",),
    "mrpc": ("f1", "accuracy"),
    "stsb": ("pearson", "spearman"),
    "qqp": ("f1", "accuracy"),
    "mnli": ("accuracy", "accuracy_mismatched"),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
}
# Wang et al., 2019 (SuperGLUE), table 1.
SUPER_OFFICIAL = {
    "boolq": ("accuracy",),
    "cb": ("cb_f1", "accuracy"),
    "copa": ("accuracy",),
    "multirc": ("answers_f1", "answers_match"),
    "record": ("squad_f1", "squad_exact_match"),
    "superglue_rte": ("accuracy",),
    "wic": ("accuracy",),
    "wsc": ("accuracy",),
}
_NOTE = (
    "Scores of the validation parts, times 100. A task's score is the mean of its "
    "metrics, and the average is the mean of the tasks' scores, as on {}'s "
    "leaderboard{}."
)
GLUE = Benchmark(
    "GLUE",
    "glue",
    OFFICIAL,
    "wnli",
    _NOTE.format("GLUE", ", but without WNLI, as in BERT's paper"),
)
SUPER_GLUE = Benchmark(
    "SuperGLUE", "superglue", SUPER_OFFICIAL, None, _NOTE.format("SuperGLUE", "")
)
NAME = "all-glue"
BENCHMARKS = {NAME: GLUE, "all-superglue": SUPER_GLUE}


def finetune_all(
    finetune: Callable[..., dict[str, Any]],
    why_not: Callable[..., str | None],
    data: Path | None,
    output: Path | None,
    report: Callable[[str], object],
    benchmark: Benchmark = GLUE,
) -> dict[str, Any]:
    """Fine-tune on each task of a benchmark that is there, and report the table.

    Args:
        finetune: takes the name of a task, its folder and that for its model, and
            returns the medians of its metrics.
        why_not: takes the name of a task and its folder, and returns why it can't be
            learned, or `None`. It is called for all tasks before the first is trained,
            so that broken files raise their errors early.
        data: folder with a folder for each task, such as `mrpc` or `MRPC`; `None`
            downloads.
        output: folder for `glue.md`, `glue.json`, the models, and `glue.zip` with their
            predictions for GLUE's site; or `None`.
        report: function that takes a text.
        benchmark: `Benchmark`.

    Returns:
        Dict, see `summary`.
    """
    if output is not None:
        folders.check_destination(output)
    places, missing = find_tasks(data, benchmark)
    for task, place in list(places.items()):
        reason = why_not(task, place)
        if reason is not None:
            missing[task] = reason
            del places[task]
    if not places:
        raise ValueError(
            f"`data` must be a folder with a folder for each task of {benchmark.title},"
            f" such as {[*benchmark.official][2]}. Received: "
            f"{os.fspath(data or '')!r}, with none of them."
        )
    for task, reason in missing.items():
        report(f"{task} is left out: {reason}")
    archive = os.path.join(output or "", f"{benchmark.file}.zip")
    if output is not None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(archive)  # of models that are replaced
    done = [] if output is None else _write_majority(data, output, report, benchmark)
    results = {}
    for task, place in places.items():
        report(f"{task}:")
        target = None if output is None else os.path.join(output, task)
        results[task] = finetune(task, data=place, output=target)
        # The table is written after each task: a killed run leaves what it has.
        left = {name: "not trained yet" for name in places if name not in results}
        found = summary(results, {**missing, **left}, benchmark)
        if output is not None:
            _write(output, found, benchmark)
    report(table(found, benchmark))
    if output is not None:
        trained = [os.path.join(output, task) for task in places]
        submissions.write_zip(archive, [*trained, *done], report)
    return found


def _write_majority(data, output, report, benchmark):
    """Write the file of the task that isn't learned, and list its folder."""
    name = benchmark.by_majority
    if name is None:
        return []
    folder = os.path.join(output, name)
    path = None if data is None else _folder_of(name, data)
    written = submissions.write_majority(name, path, folder, report)
    return [folder] if written else []


def find_tasks(
    data: Path | None, benchmark: Benchmark = GLUE
) -> tuple[dict[str, Any], dict[str, str]]:
    """Find the folders of a benchmark's tasks, and say why others have none.

    Args:
        data: folder, or `None`: then each task is to be downloaded.
        benchmark: `Benchmark`.

    Returns:
        Tuple of two dicts: from names of tasks to folders or `None`, and from names of
        missing tasks to reasons.
    """
    official = benchmark.official
    if data is None:
        return dict.fromkeys(official), {}
    if not os.path.isdir(data):
        raise ValueError(
            "`data` must be a folder with a folder for each task of "
            f"{benchmark.title}. Received: {os.fspath(data)!r}."
        )
    found = {task: _folder_of(task, data) for task in official}
    places = {task: path for task, path in found.items() if path is not None}
    return places, {task: "no folder" for task in official if task not in places}


def _folder_of(task, data):
    """Find the folder of a task, by its own name or one like it, or give `None`."""
    # A folder that has the name of another task comes last.
    names = sorted(os.listdir(data), key=lambda name: (name in TASKS, name))
    reduced = submissions.folder_name(task)
    like = [n for n in names if submissions.folder_name(n) == reduced]
    paths = [os.path.join(data, name) for name in (task, *like)]
    return next(filter(os.path.isdir, paths), None)


def summary(
    results: Mapping[str, Mapping[str, Any]],
    missing: Mapping[str, str],
    benchmark: Benchmark = GLUE,
) -> dict[str, Any]:
    """Compute a benchmark's scores, in percent.

    Args:
        results: dict from names of tasks to their metrics, from -1 to 1; SQuAD's are
            in percent already.
        missing: dict from names of tasks without results to reasons.
        benchmark: `Benchmark`.

    Returns:
        Dict of the `average`, the `tasks` (dicts of their `metrics`, `score` and
        `settings`) and what is `missing`.
    """
    tasks: dict[str, Any] = {}
    missing = dict(missing)
    for task, names in benchmark.official.items():
        if task not in results:
            missing.setdefault(task, "no result")
            continue
        given = results[task]
        metrics = {
            name: given[name] * (1 if name.startswith("squad_") else 100)
            for name in names
            if name in given
        }
        for name in set(names) - set(metrics):
            missing[f"{task}, {name}"] = "no such part"
        score = statistics.fmean(metrics.values())
        settings = given.get("settings")
        tasks[task] = {"metrics": metrics, "score": score, "settings": settings}
    average = statistics.fmean(task["score"] for task in tasks.values())
    return {"average": average, "tasks": tasks, "missing": missing}


def table(found: Mapping[str, Any], benchmark: Benchmark = GLUE) -> str:
    """Write what `summary` gives as Markdown."""
    lines = ["| task | metrics | score |", "|---|---|---:|"]
    for task, scores in found["tasks"].items():
        metrics = ", ".join(f"{k} {v:.1f}" for k, v in scores["metrics"].items())
        lines.append(f"| {task} | {metrics} | {scores['score']:.1f} |")
    count = f"{len(found['tasks'])} of {len(benchmark.official)} tasks"
    lines.append(f"| average | {count} | {found['average']:.1f} |")
    left_out = [f"- without {name}: {why}" for name, why in found["missing"].items()]
    left_out += [""] if left_out else []
    return "\n".join([*lines, "", *left_out, benchmark.note])


def _write(output, found, benchmark):
    os.makedirs(output, exist_ok=True)
    for end, text in (
        ("md", table(found, benchmark)),
        ("json", json.dumps(found, indent=2)),
    ):
        write_text(os.path.join(output, f"{benchmark.file}.{end}"), text + "\n")
