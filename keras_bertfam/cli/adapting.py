"""A preset and a domain, three ways: as it is, trained further, and from scratch."""

import dataclasses
import os
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_bertfam import models, tasks
from keras_bertfam.analysis import plots
from keras_bertfam.cli import finetuning, pretraining
from keras_bertfam.cli.reproduce.measures import MEASURES, Trained, measure
from keras_bertfam.cli.reproduce.paper_tables import folder_name
from keras_bertfam.cli.reproduce.results import Results
from keras_bertfam.cli.runs import PRECISIONS, PretrainingRun, merged
from keras_bertfam.presets import folders
from keras_bertfam.presets.working_folders import working_folder
from keras_bertfam.types import Config
from keras_bertfam.whole_files import write_text

AS_IT_IS, FURTHER, FROM_SCRATCH = WAYS = ("as it is", "further", "from scratch")
# Measures of the encoder itself, beside the metrics of the task.
MEASURED = ("masked_perplexity", "character_nats")
# BERT's settings, except its warm-up, which is for a million steps.
_DEFAULTS: Config = {"learning_rate": 1e-4, "warmup_steps": 0.1, "batch_size": 32}
_LENGTH = 128
# For each way, a dict of scores for each seed.
Scores = dict[str, list[dict[str, Any]]]


def runs_of(
    files: Sequence[str], preset: str, steps: int, changes: Config
) -> dict[str, PretrainingRun]:
    """Make the run that goes on from a preset, and one of a new encoder like it.

    Both mask as the family's recipe says.

    Args:
        files: text files of the domain, or a prepared corpus.
        preset: str, of a masked language model.
        steps: int. Updates of each run.
        changes: dict of settings of both runs.

    Returns:
        Dict of the runs `"further"` and `"from scratch"`.

    Raises:
        ValueError: for an unknown setting, or a preset without a tokenizer.
    """
    backbone = models.Backbone.from_preset(preset, load_weights=False)
    positions = getattr(backbone, "max_sequence_length", None) or _LENGTH
    settings = {**_DEFAULTS, "sequence_length": min(_LENGTH, positions), **changes}
    settings |= {"files": tuple(files), "objective": "mlm", "resume": True}
    settings |= {"epochs": 1, "steps_per_epoch": steps}
    preprocessor = tasks.MaskedLM.preprocessor_cls.from_preset(preset)
    tokenizer = preprocessor.tokenizer
    shape = backbone.get_config()
    for name in ("vocabulary_size", "name", "dtype", "trainable"):
        shape.pop(name, None)
    own = {"backbone_arguments": shape, "family": backbone.record.name}
    own |= {"vocabulary_size": tokenizer.vocabulary_size()}
    own |= {"cased": not getattr(tokenizer, "lowercase", False)}
    # A new encoder takes the masking of its family's recipe by itself.
    recipe = PretrainingRun.of(merged(own, settings), "of --set").recipe
    masking = recipe.masking if recipe.task == "MaskedLM" else {}
    masking = {k: v for k, v in masking.items() if not k.endswith("_length")}
    if "strategy" in changes:
        masking.pop("strategy", None)
    settings = merged({"preprocessor_arguments": masking}, settings)
    return {
        FURTHER: PretrainingRun(**settings, preset=preset),
        FROM_SCRATCH: PretrainingRun(**merged(own, settings)),
    }


def adapt(
    runs: dict[str, PretrainingRun],
    preset: str,
    held_out: Sequence[str],
    output: str,
    seeds: int,
    labelled: Config,
    report: Callable[[str], object] = print,
) -> Scores:
    """Train a preset on a domain, and an encoder like it anew; measure all three.

    A call that was killed can be repeated: finished ways and seeds are in
    `results.json` and aren't trained again.

    Args:
        runs: see `runs_of`.
        preset: str.
        held_out: text files of the domain, to measure on.
        output: folder for `table.md`, `table.png` (with `matplotlib`), `results.json`
            and the presets.
        seeds: int. How often each way is trained and fine-tuned.
        labelled: dict of arguments of `finetuning.finetune`: `task`, `data` and the
            like.
        report: function that takes a line of text.

    Returns:
        Dict from ways to lists of scores, one of each seed.

    Raises:
        ValueError: for an `output` that is in use, or holds results of other settings.

    Reference: [Chalkidis et al., 2020](https://arxiv.org/abs/2010.02559), section 3.
    """
    folders.check_destination(output)
    runs = {way: pretraining.with_precision(run, report) for way, run in runs.items()}
    with working_folder(os.path.join(output, ".running"), output):
        results = Results(output)
        for seed, way in ((seed, way) for seed in range(seeds) for way in WAYS):
            run = runs[FURTHER if way == AS_IT_IS else way].changed(seed=seed)
            settings = {**dataclasses.asdict(run), "held_out": [*held_out], **labelled}
            for name in ("output", "resume"):
                del settings[name]
            if results.find(way, seed) is not None:
                results.check(way, seed, settings)
                continue
            report(f"{way}, seed {seed}:")
            place = preset
            if way != AS_IT_IS:
                place = os.path.join(output, f"{folder_name(way)}-{seed}")
                pretraining.pretrain(run.changed(output=place), lambda line: None)
            keras.config.set_dtype_policy(PRECISIONS[run.precision])
            documents = pretraining.read(run, held_out)
            task = tasks.MaskedLM.from_preset(place)
            scores = measure(Trained(task, run, documents, run), MEASURED)
            tuned = finetuning.finetune(
                preset=place, seeds=[seed], report=report, **labelled
            )
            del tuned["settings"]
            results.add(way, seed, settings, {**scores, **tuned})
            _write(_scores(results, seeds), output, report)
            keras.utils.clear_session()
        found = _scores(results, seeds)
        _write(found, output, report)  # the last call may have been killed before
        return found


def _scores(results, seeds):
    """Give the scores of the ways that are finished so far."""
    found = {way: [results.find(way, seed) for seed in range(seeds)] for way in WAYS}
    there = {way: [x for x in each if x is not None] for way, each in found.items()}
    return {way: each for way, each in there.items() if each}


def table(scores: Scores) -> str:
    """Write the seeds' means, with the least and greatest values, as Markdown."""
    names = _names(scores)
    lines = [["", *map(_title, names)], ["---", *["---:"] * len(names)]]
    for way, found in scores.items():
        cells = []
        for name in names:
            values = [each[name] for each in found]
            least, most = min(values), max(values)
            spread = f" ({least:.4g} to {most:.4g})" if len(values) > 1 else ""
            cells.append(f"{statistics.fmean(values):.4g}{spread}")
        lines.append([way, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _names(scores):
    """List the columns. Scores that a prepared corpus can't give are left out."""
    first = next(iter(scores.values()))[0]
    return [name for name, value in first.items() if value is not None]


def _title(name):
    return MEASURES[name].title if name in MEASURES else name


def _write(scores, output, report):
    """Write the table, and draw a panel of it for each column."""
    write_text(os.path.join(output, "table.md"), f"{table(scores)}\n")
    names = _names(scores)
    path = os.path.join(output, "table.png")
    try:
        figure, axes = plots.new_figure(len(names))
    except ImportError as error:
        report(f"{path} wasn't drawn: {error}")
        return
    for axis, name in zip(axes, names, strict=False):
        for place, found in enumerate(scores.values()):
            values = [each[name] for each in found]
            axis.plot([place] * 2, [min(values), max(values)], color="C0")
            axis.plot(place, statistics.fmean(values), "o", color="C0")
        axis.set(title=_title(name), xlim=(-0.5, len(WAYS) - 0.5))
        axis.set_xticks(range(len(scores)), [*scores])
        axis.grid(axis="y", alpha=0.3)
    plots.written(figure, path)
