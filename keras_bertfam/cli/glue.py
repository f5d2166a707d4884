"""All tasks of GLUE, one after the other, and their table with the average."""

import json
import os
import re
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from keras_bertfam.presets import folders
from keras_bertfam.types import Path
from keras_bertfam.whole_files import write_text

NAME = "all-glue"
# Wang et al., 2019, table 1; of MNLI both parts count. WNLI is left out as in table 1
# of BERT's paper, for its validation part was made to mislead.
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
_NOTES = (
    "Scores of the validation parts, times 100. A task's score is the mean of its "
    "metrics, and the average that of the tasks' scores, as on GLUE's leaderboard, but "
    "without WNLI, as in BERT's paper.",
)


def finetune_all(
    finetune: Callable[..., dict[str, Any]],
    load: Callable[..., Any],
    data: Path | None,
    output: Path | None,
    report: Callable[[str], object],
) -> dict[str, Any]:
    """Fine-tune on each task of GLUE that is there, and report the table.

    Args:
        finetune: takes the name of a task, its folder and that for its model, and
            returns the medians of its metrics.
        load: takes the name of a task and its folder, and raises `FileNotFoundError`
            if its files are missing; called for all tasks before the first is trained.
        data: folder with a folder for each task, such as `mrpc` or `MRPC`; `None`
            downloads.
        output: folder for `glue.md`, `glue.json` and the models, or `None`.
        report: function that takes a text.

    Returns:
        Dict, see `summary`.
    """
    if output is not None:
        folders.check_destination(output)
    places, missing = find_tasks(data)
    for task, place in list(places.items()):
        try:
            load(task, place)
        except FileNotFoundError as error:
            missing[task] = str(error)
            del places[task]
    if not places:
        raise ValueError(
            "`data` must be a folder with a folder for each task of GLUE, such as "
            f"mrpc. Received: {os.fspath(data or '')!r}, with none of them."
        )
    for task, reason in missing.items():
        report(f"{task} is left out: {reason}")
    results = {}
    for task, place in places.items():
        report(f"{task}:")
        target = None if output is None else os.path.join(output, task)
        results[task] = finetune(task, data=place, output=target)
        # After each task, so that a run that is cut off leaves what it has.
        left = {name: "not trained yet" for name in places if name not in results}
        found = summary(results, {**missing, **left})
        if output is not None:
            _write(output, found)
    report(table(found))
    return found


def find_tasks(data: Path | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Find the folders of GLUE's tasks, and say why there are none of others.

    Args:
        data: folder, or `None`: then each task is to be downloaded.

    Returns:
        Tuple of a dict from names of tasks to folders or `None`, and one from names
        of those that aren't there to reasons.
    """
    if data is None:
        return dict.fromkeys(OFFICIAL), {}
    if not os.path.isdir(data):
        raise ValueError(
            "`data` must be a folder with a folder for each task of GLUE. "
            f"Received: {os.fspath(data)!r}."
        )
    there = sorted(os.listdir(data), key=lambda name: (name in OFFICIAL, name))
    names = {re.sub(r"\W|_|glue", "", name.lower()): name for name in there}
    paths = {task: os.path.join(data, name) for task, name in names.items()}
    places = {t: paths[t] for t in OFFICIAL if os.path.isdir(paths.get(t, ""))}
    return places, {task: "no folder" for task in OFFICIAL if task not in places}


def summary(
    results: Mapping[str, Mapping[str, Any]], missing: Mapping[str, str]
) -> dict[str, Any]:
    """Compute GLUE's scores, in percent.

    Args:
        results: dict from names of tasks to their metrics, from -1 to 1.
        missing: dict from names of tasks without any to reasons.

    Returns:
        Dict of the `average`, the `tasks` (dicts of their `metrics`, `score` and
        `settings`) and what is `missing`.
    """
    tasks: dict[str, Any] = {}
    missing = dict(missing)
    for task, names in OFFICIAL.items():
        if task not in results:
            missing.setdefault(task, "no result")
            continue
        given = results[task]
        metrics = {name: 100 * given[name] for name in names if name in given}
        for name in set(names) - set(metrics):
            missing[f"{task}, {name}"] = "no such part"
        score = statistics.fmean(metrics.values())
        settings = given.get("settings")
        tasks[task] = {"metrics": metrics, "score": score, "settings": settings}
    average = statistics.fmean(task["score"] for task in tasks.values())
    return {"average": average, "tasks": tasks, "missing": missing}


def table(found: Mapping[str, Any]) -> str:
    """Write what `summary` gives as Markdown."""
    lines = ["| task | metrics | score |", "|---|---|---:|"]
    for task, scores in found["tasks"].items():
        metrics = ", ".join(f"{k} {v:.1f}" for k, v in scores["metrics"].items())
        lines.append(f"| {task} | {metrics} | {scores['score']:.1f} |")
    count = f"{len(found['tasks'])} of {len(OFFICIAL)} tasks"
    lines.append(f"| average | {count} | {found['average']:.1f} |")
    left_out = [f"- without {name}: {why}" for name, why in found["missing"].items()]
    return "\n".join([*lines, "", *left_out, *([""] if left_out else []), *_NOTES])


def _write(output, found):
    os.makedirs(output, exist_ok=True)
    for name, text in (
        ("glue.md", table(found)),
        ("glue.json", json.dumps(found, indent=2)),
    ):
        write_text(os.path.join(output, name), text + "\n")
