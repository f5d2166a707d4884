"""Check what a command can refuse before it imports the frameworks.

Importing them takes seconds, and none of these checks needs a model. Errors that are
found here would be found later as well.
"""

import errno
import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

from keras_bertfam import parsing
from keras_bertfam.cli import glue
from keras_bertfam.cli.runs import (
    AUTO,
    FILE_NAME,
    TOKENIZERS,
    PretrainingRun,
    check_choice,
)
from keras_bertfam.corpora.manifest import check_output
from keras_bertfam.datasets.task_data import get_task
from keras_bertfam.presets import folders
from keras_bertfam.presets.inspection import (
    TASK_FILE,
    check_findable,
    check_no_preset,
    class_of,
    fine_tuned,
    published_family,
    tasks_of,
)
from keras_bertfam.presets.working_folders import check_working_folder
from keras_bertfam.tasks.generation.settings import SAMPLERS
from keras_bertfam.text_files.sources import Reading, find_files
from keras_bertfam.types import Config
from keras_bertfam.whole_files import file_digest

_DATASETS = ("tfds:", "hf:")
# What is written beside a preset, see `beside`.
GENERATOR, CHECKPOINTS = "generator", "checkpoints"
# Of an unfinished run: what was in its files.
CONTENTS = "files.json"
_LONG = 2**28  # bytes of a file that takes long to read


def check_files(name: str, files: Sequence[str]) -> None:
    """Raise a `FileNotFoundError` for files that aren't there.

    Args:
        name: of the argument.
        files: paths and patterns of files or folders. Names of datasets aren't checked.
    """
    for file in files:
        if file.startswith(_DATASETS) or os.path.exists(file):
            continue
        if not glob.glob(file, recursive=True):
            raise FileNotFoundError(
                f"`{name}` must name existing files, by paths or patterns. "
                f"Received: {file!r}, which is none."
            )


def check_feature(feature: str, files: Sequence[str]) -> None:
    """Raise a `ValueError` for a field of records if all files are plain text."""
    folders_or_datasets = [
        f for f in files if f.startswith(_DATASETS) or os.path.isdir(f)
    ]
    if feature == Reading.feature or folders_or_datasets:
        return
    if all(source.kind == "text" for source in find_files(files, "files")):
        raise ValueError(
            "`feature` must be left out with text files, which have no fields. "
            f"Received: {feature!r}."
        )


def check_there(path: str, name: str) -> None:
    """Raise a `FileNotFoundError` for a path where nothing is."""
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"`{name}` must name existing files. Received: {path!r}, which is none."
        )


def check_texts(files: Sequence[str], name: str = "files") -> None:
    """Raise an `OSError` or a `ValueError` for paths that aren't of files."""
    for file in files:
        check_there(file, name)
        if os.path.isdir(file):
            raise ValueError(
                f"`{name}` must name files. Received: {file!r}, which is a folder."
            )


def check_new_file(output: str) -> None:
    """Raise an error for a path to which no file can be written."""
    folder = os.path.dirname(os.path.abspath(output))
    if os.path.isdir(output) or not os.path.isdir(folder):
        raise ValueError(
            "`output` must be the path of a file, in a folder that is there. "
            f"Received: {output!r}."
        )
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


def check_task_folder(preset: str) -> None:
    """Raise a `ValueError` for a path that isn't the folder of a task."""
    if not os.path.exists(os.path.join(preset, TASK_FILE)):
        raise ValueError(
            "`preset` must be the directory of a fine-tuned task. "
            f"Received: {preset!r}, which has no {TASK_FILE}."
        )


def check_run(run: PretrainingRun) -> None:
    """Check the files, presets and folders that a run names.

    Args:
        run: `PretrainingRun`.

    Raises:
        ValueError: for a run without files, output or the teacher that its objective
            needs; and if a run was killed in the same place, unless this run resumes it
            with the same settings.
        OSError: for files that aren't there, or an output that can't be written.
    """
    for name in ("files", "output"):
        if not getattr(run, name):
            raise ValueError(f"`{name}` must be given. Received: nothing.")
    if run.objective_name == "distillation" and run.teacher is None:
        raise ValueError(
            "`teacher` must be the preset to distil, or `objective` another one than "
            "'distillation'. Received: teacher=None."
        )
    Reading(encoding=run.encoding, max_line_length=run.max_line_length)  # or raises
    check_files("files", run.paths())
    check_files("validation", run.validation_paths())
    check_feature(run.feature, [*run.paths(), *run.validation_paths()])
    learned = run.tokenizer in TOKENIZERS
    presets = {"preset": run.preset, "teacher": run.teacher}
    presets["tokenizer"] = None if learned else run.tokenizer
    for name, preset in presets.items():
        if preset is not None:
            check_findable(preset, name)
    folders.check_preset_destination(run.output)
    if run.objective_name == "rtd":
        folders.check_preset_destination(beside(run, GENERATOR))
    backup = backup_folder(run)
    check_working_folder(backup, run.output)
    if not has_backup(backup):
        return
    if not run.resume:
        raise ValueError(
            "`resume` must be given to continue the killed run whose state is in "
            f"{backup}. Delete that folder to begin anew. Received: resume=False."
        )
    for name, value in vars(killed_run(run)).items():
        if name == "precision" and run.precision == AUTO:
            continue  # the killed run's is taken
        if _as_read(value) != _as_read(getattr(run, name)):
            raise ValueError(
                f"`{name}` must be {value!r}, as in the killed run whose state is in "
                f"{backup}. Received: {getattr(run, name)!r}."
            )
    _check_unchanged(run, backup)


def _check_unchanged(run, backup):
    """Refuse to go on with other text than that of the killed run."""
    path = os.path.join(backup, CONTENTS)
    if not os.path.exists(path):  # of an earlier version
        return
    before, now = parsing.read_json(path), contents_of_files(run)
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            (old, _), (new, _) = (each.get(name, ("no", 0)) for each in (before, now))
            raise ValueError(
                "`files` and `validation` must be as they were in the killed run whose "
                f"state is in {backup}: {name!r} had {old} bytes. Received: {new} "
                f"bytes{', which differ' if old == new else ''}."
            )


def contents_of_files(run: PretrainingRun) -> dict[str, list[Any]]:
    """Give the bytes of each file that a run reads, and a digest, by path.

    Files of 256 MiB and more have no digest, as reading them would take long.
    """
    paths = [*run.paths(), *run.validation_paths()]
    paths = [path for path in paths if not path.startswith(_DATASETS)]
    paths = [
        os.path.join(glob.escape(p), "*") if os.path.isdir(p) else p for p in paths
    ]
    found = find_files(paths, "files") if paths else []
    return {
        each.name: [each.bytes, file_digest(each.name) if each.bytes < _LONG else None]
        for each in found
    }


def killed_run(run: PretrainingRun) -> PretrainingRun:
    """Read the settings of the killed run that a run resumes."""
    return PretrainingRun.read(os.path.join(backup_folder(run), FILE_NAME), resume=True)


def _as_read(value):
    """Give a setting as a file of settings has it: with lists in place of tuples."""
    if isinstance(value, (list, tuple)):
        return [_as_read(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _as_read(each) for name, each in value.items()}
    return value


def check_vocabulary(run: PretrainingRun) -> None:
    """Check the text that a vocabulary is learned from, and the folder it goes to.

    Args:
        run: `PretrainingRun`.

    Raises:
        ValueError: without files or output, or for a tokenizer that isn't a kind to
            learn.
        OSError: for files that aren't there, or an output that can't be written.
    """
    for name in ("files", "output"):
        if not getattr(run, name):
            raise ValueError(f"`{name}` must be given. Received: nothing.")
    Reading(encoding=run.encoding, max_line_length=run.max_line_length)  # or raises
    check_choice("tokenizer", run.tokenizer, (None, *TOKENIZERS))
    check_files("files", run.paths())
    check_feature(run.feature, run.paths())
    for file in run.prepared:
        raise ValueError(
            f"`files` must name text files. Received: {file!r}, which is a folder."
        )
    folders.check_preset_destination(run.output)


def beside(run: PretrainingRun, name: str) -> str:
    """Give the path of a folder beside a run's preset, such as `my_bert-generator`."""
    return f"{os.path.abspath(run.output)}-{name}"


def backup_folder(run: PretrainingRun) -> str:
    """Give the folder that holds the state of an unfinished run."""
    return beside(run, "backup")


def kept_tokenizer(run: PretrainingRun) -> str | None:
    """Give the folder of the tokenizer of the killed run that a run resumes, if any."""
    backup = backup_folder(run)
    folder = os.path.join(backup, "tokenizer")
    there = run.resume and has_backup(backup) and os.path.isdir(folder)
    return folder if there else None


def has_backup(folder: str) -> bool:
    """Tell whether a folder holds enough of a killed run to continue it."""
    places = (glob.escape(folder), os.path.join(glob.escape(folder), "phase-*"))
    return any(glob.glob(os.path.join(place, "backup.npz")) for place in places)


def check_prepared(
    sources: Sequence[str],
    output: str,
    tokenizer: str | None,
    new_vocabulary: int | None,
    test_sets: Sequence[str],
    split: str | None,
    feature: str | None,
) -> None:
    """Check the arguments of `preparing.prepare`."""
    if split is not None and not any(s.startswith(_DATASETS) for s in sources):
        raise ValueError(
            "`split` must be left out unless a source is a dataset, "
            f"{' or '.join(f'{name}NAME' for name in _DATASETS)}. Received: {split!r}."
        )
    check_files("sources", sources)
    check_files("test_set", test_sets)
    check_feature(feature or Reading.feature, sources)
    check_output(output)
    if new_vocabulary is None:
        if tokenizer is None:
            raise ValueError(
                "`tokenizer` must be given, or `new_vocabulary`. Received: neither."
            )
        check_findable(tokenizer, "tokenizer")
    else:
        check_choice("tokenizer", tokenizer, (None, *TOKENIZERS))


def check_finetuning(
    preset: str, task: str | None, data: str | None, output: str | None, **own: Any
) -> None:
    """Check the arguments of `finetuning.finetune`.

    Args:
        preset, task, data, output: see `finetuning.finetune`.
        **own: arguments for a user's own table: `text`, `label`, `validation`.
    """
    check_findable(preset)
    if output is not None:
        folders.check_preset_destination(output)
        _check_apart(preset, output, task)
    if data is not None:
        check_files("data", [data])
    check_something(task, data)
    if task is None:
        check_files("validation", [own["validation"]] if own["validation"] else [])
        return
    check_without_own(task, own)
    if task not in glue.BENCHMARKS:
        get_task(task)


def _check_apart(preset, output, task):
    """Refuse an output that replaces the preset, which every run begins with."""
    if not os.path.exists(preset):
        return  # a name, or a handle
    tasks = glue.BENCHMARKS[task].official if task in glue.BENCHMARKS else None
    written = [output] if tasks is None else [os.path.join(output, t) for t in tasks]
    source = os.path.join(os.path.realpath(preset), "")
    if any(source.startswith(os.path.join(os.path.realpath(w), "")) for w in written):
        raise ValueError(
            "`output` must be another folder than `preset`, and not one that holds it. "
            f"Received: output={output!r}, preset={preset!r}."
        )


def check_scoring(task: str | None, data: str | None, **own: Any) -> None:
    """Check the arguments of `scoring.load`.

    Args:
        task, data: see `scoring.load`.
        **own: arguments for a user's own table: `text`, `label`.
    """
    if data is not None:
        check_files("data", [data])
    check_something(task, data)
    if task is not None:
        check_without_own(task, own)
        get_task(task)


# Settings that `adapt` sets itself, or has an option for.
_OF_ADAPT = (
    "files output preset teacher family size objective tokenizer vocabulary_size "
    "new_words epochs steps_per_epoch seed resume mix_exponent"
).split()


def check_adapting(
    files: Sequence[str],
    preset: str,
    held_out: Sequence[str],
    output: str,
    steps: int,
    seeds: int,
    task: str | None,
    changes: Config,
) -> None:
    """Check the arguments of `adapting.adapt`."""
    for name in _OF_ADAPT:
        if name in changes:
            raise ValueError(
                "--set must not name a setting that `adapt` sets itself. Received: "
                f"{name}={changes[name]!r}."
            )
    PretrainingRun.of(changes, "of --set")
    check_files("files", files)
    check_files("held_out", held_out)
    check_findable(preset)
    folders.check_destination(output)
    for name, value in (("steps", steps), ("seeds", seeds)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {value}.")
    if task in glue.BENCHMARKS:
        raise ValueError(f"`task` must be a single one. Received: {task!r}.")


def check_something(task: Any, data: Any) -> None:
    """Raise a `ValueError` if there is neither a task nor a table."""
    if task is None and data is None:
        raise ValueError(
            "`task` must be the name of a task, or `data` a table of your own. "
            "Received: neither."
        )


def check_without_own(task: Any, own: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for a task with arguments that are for a user's table."""
    given = {name: value for name, value in own.items() if value is not None}
    if given:
        *names, last = (f"`{name}`" for name in own)
        raise ValueError(
            f"{', '.join(names)} and {last} must be given for a table of your own "
            f"only, without a task. Received: {given}, task={task!r}."
        )


def check_conversion(source: str, destination: str, to: str) -> None:
    """Check the folders of `conversion.convert`."""
    if os.path.realpath(source) == os.path.realpath(destination):
        raise ValueError(
            f"`destination` must be another folder than `source`. Received: {source!r} "
            "as both."
        )
    check_findable(source, "source")
    if to == "transformers":
        folders.check_destination(destination)
        check_no_preset(destination)
    else:
        folders.check_preset_destination(destination)


def check_sampler(sampler: str) -> None:
    """Raise a `ValueError` for an unknown sampler."""
    check_choice("sampler", sampler, SAMPLERS)


FILL_MASKS = (
    "MaskedAutoencoder",
    "MaskedDiffusionLM",
    "MaskedLM",
    "MaskedLMSentencePair",
    "MaskedPermutedLM",
    "ReplacedTokenDetection",
    "SpanBoundaryLM",
)
WRITE = ("CausalLM", "RecurrentLM", "RetrievalAugmentedGenerator", "TextToText")
_EXPORTED = {"top_k": FILL_MASKS, "max_length": WRITE, "sampler": WRITE}


PREDICT = (*fine_tuned(), "TextToText")
# Options of `generate` that say how a sampler draws, and its arguments.
SAMPLED_BY = {
    "random": {"temperature": "temperature", "seed": "seed"},
    "top_k": {"temperature": "temperature", "seed": "seed", "top_k": "k"},
    "top_p": {
        "temperature": "temperature",
        "seed": "seed",
        "top_k": "k",
        "top_p": "p",
    },
}
# Options of a beam search alone.
_OF_BEAMS = ("length_penalty", "num_beams")
# Commands that take some tasks only; the other commands take every task.
TAKEN = {
    "fill-mask": FILL_MASKS,
    "generate": ("CausalLM", "RecurrentLM", "TextToText"),
    "predict": PREDICT,
    "score": PREDICT,
}
_EVERY = ("analyse", "export", "finetune")


def check_taken(command: str, preset: str) -> None:
    """Raise a `ValueError` for a preset of a task that a command doesn't take.

    Args:
        command: a key of `TAKEN`.
        preset: name or folder of a checkpoint. A backbone's is always taken.
    """
    taken, task = TAKEN[command], saved_task(preset)
    if task is None:
        family = published_family(preset)
        if family is None or {*tasks_of(family)} & {*taken}:
            return
        task = tasks_of(family)[0]
    if task not in taken:
        others = [name for name, tasks in TAKEN.items() if task in tasks]
        raise ValueError(
            f"`preset` must be of one of {', '.join(taken)} for {command}. Received: "
            f"{preset!r}, of a {task}, which {', '.join([*others, *_EVERY])} take."
        )


def check_sampling(sampler: str, given: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for options of `generate` that a sampler doesn't read.

    Args:
        sampler: its name.
        given: the options that were given, and their values.
    """
    readers = dict.fromkeys(_OF_BEAMS, ["beam"])
    for name, options in SAMPLED_BY.items():
        for option in options:
            readers.setdefault(option, []).append(name)
    for name, value in given.items():
        if name in readers and sampler not in readers[name]:
            raise ValueError(
                f"`{name}` must be left out unless `sampler` is one of "
                f"{readers[name]}. Received: {value!r}, sampler={sampler!r}."
            )


def saved_task(preset: str) -> str | None:
    """Read the name of the class of the task in a folder, if there is one."""
    path = os.path.join(preset, TASK_FILE)
    if not os.path.isfile(path):
        return None
    saved: Any = parsing.read_json(path)
    named = isinstance(saved, dict) and "registered_name" in saved
    return class_of(saved) if named else None


def check_export(preset: str, options: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for options that the task in a folder has no use for."""
    task = saved_task(preset)
    for name, value in options.items():
        if task is not None and task not in _EXPORTED.get(name, (task,)):
            raise ValueError(
                f"`{name}` must be left out unless the preset is of "
                f"{', '.join(_EXPORTED[name][:-1])} or {_EXPORTED[name][-1]}. "
                f"Received: {value!r} with one of {task}."
            )
