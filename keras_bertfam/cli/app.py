"""The commands of `python -m keras_bertfam`."""

import contextlib
import enum
import functools
import os
import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from keras_bertfam.cli import combinations, inputs, preparing, screen
from keras_bertfam.cli.glue import BENCHMARKS
from keras_bertfam.cli.options import as_setting, takes_a_run
from keras_bertfam.cli.reproduce import paper_report, paper_tables, studies
from keras_bertfam.cli.reproduce.labelled import LABELLED_LIMIT
from keras_bertfam.cli.runs import VOCABULARY, PretrainingRun
from keras_bertfam.cli.screen import as_options, of_command
from keras_bertfam.datasets.task_data import TASKS
from keras_bertfam.presets.checkpoints.source import TOKENIZERS
from keras_bertfam.presets.inspection import check_export_paths
from keras_bertfam.text_files.sources import MAX_LINE_LENGTH


class _Commands(typer.core.TyperGroup):
    """Read `--verbose` wherever it stands on the command line.

    A user whose command has failed adds it at the end.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        others = [arg for arg in args[:end] if arg != "--verbose"]
        asked = ["--verbose"] * (len(others) < end)
        return super().parse_args(ctx, [*asked, *others, *args[end:]])


# Commands whose standard output is what is asked for. Others work on without a reader.
_THAT_ANSWER = ("predict", "score", "fill-mask", "generate")


class _Command(typer.core.TyperCommand):
    """Run a command that names its options in messages and reads all it is given."""

    def invoke(self, ctx: Any) -> Any:
        given = {
            name: value
            for name, value in ctx.params.items()
            if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"
        }
        lasting = (
            contextlib.nullcontext if self.name in _THAT_ANSWER else screen.lasting
        )
        with of_command(self), lasting():
            with _errors_as_messages():
                combinations.check_options(self.name or "", given)
            return super().invoke(ctx)


app = typer.Typer(cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False)


_command = functools.partial(app.command, cls=_Command)


@app.callback()
def main(
    context: typer.Context,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also show what the frameworks log.")
    ] = False,
) -> None:
    """Pre-train, fine-tune and use models of the BERT family, in Keras 3."""
    if not verbose:
        context.with_resource(screen.quiet())


@contextlib.contextmanager
def _errors_as_messages() -> Iterator[None]:
    """Show a user's mistake as one line, without a traceback."""
    try:
        yield
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Python would still flush to
        # it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise typer.BadParameter(as_options(str(error))) from error
    except Exception as error:
        # An error of a file's reader inside `tf.data` comes back with its traceback.
        found = re.search("ValueError: (.*)", str(error))
        if type(error).__name__ != "InvalidArgumentError" or not found:
            raise
        raise typer.BadParameter(as_options(found[1])) from error


# Each command first checks its options without the frameworks, which take seconds to
# load. Then it imports what does the work.


def _pretrain(run: PretrainingRun) -> None:
    """Pre-train on text files with a family's recipe, from learning a vocabulary on."""
    with _errors_as_messages():
        inputs.check_run(run)
        with screen.loading():
            from keras_bertfam.cli import pretraining
        pretraining.pretrain(run, typer.echo)


_command("pretrain")(takes_a_run(_pretrain))


def _vocabulary(run: PretrainingRun) -> None:
    """Learn a vocabulary from text files as `pretrain` does, and save its tokenizer."""
    with _errors_as_messages():
        inputs.check_vocabulary(run)
        with screen.loading():
            from keras_bertfam.cli import pretraining
        size = pretraining.learn_vocabulary(run)
    typer.echo(f"Wrote {run.output}: {size:,} tokens.")


_command("vocabulary")(takes_a_run(_vocabulary, only=VOCABULARY))


@_command()
def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(sorted([*paper_tables.names(), *studies.STUDIES]))}; "
            "or a .yaml file of your own."
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(help="Folder for the results. Default: build/reproduce/TABLE."),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a row to train. May be repeated. Default: all rows."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each row.")] = 2,
    scale: Annotated[
        str,
        typer.Option(
            help="Factor for the number of steps, or `paper` for the paper's settings."
        ),
    ] = "1",
    data: Annotated[
        list[str] | None, typer.Option(help="Text files, or a prepared corpus.")
    ] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(help="Text files, or a prepared corpus, to measure on."),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Setting for all runs, such as size=base. May be repeated."
        ),
    ] = None,
    labelled: Annotated[
        str | None, typer.Option(help="Folder of labelled data. Some tables use it.")
    ] = None,
    labelled_limit: Annotated[
        int | None,
        typer.Option(
            help="The most examples to learn of each labelled dataset. Default: "
            f"{LABELLED_LIMIT}."
        ),
    ] = None,
    sizes: Annotated[
        list[float] | None,
        typer.Option(
            help="For electra-compute: width of the generator, as a share of the "
            "discriminator's. May be repeated."
        ),
    ] = None,
) -> None:
    """Pre-train the rows of a paper's table; show our figures beside the paper's."""
    stem = os.path.splitext(os.path.basename(table))[0]
    output = output or os.path.join("build", "reproduce", stem)
    with _errors_as_messages():
        factor = scale if scale == paper_tables.PAPER else _as_number(scale)
        changes = dict(map(as_setting, change or ()))
        if table in studies.STUDIES:
            if labelled_limit is not None:
                raise ValueError(
                    f"`labelled_limit` must be left out for the table {table}. "
                    f"Received: {labelled_limit}."
                )
            request = studies.Request(
                output,
                rows or (),
                seeds,
                factor,  # type: ignore[arg-type]  # which it checks
                data or (),
                held_out or (),
                changes,
                labelled,
                sizes or (),
                typer.echo,
            )
            study = studies.of(table, request)
            with screen.loading():
                import keras  # noqa: F401
            scores = studies.run(study)
            typer.echo(f"\n{paper_report.as_text(study.table, scores)}")
            typer.echo(f"\nWrote {output}: table.md, table.png, results.json.")
            return
        if sizes:
            raise ValueError(
                "`sizes` must be left out except for the table electra-compute. "
                f"Received: {[*sizes]}."
            )
        known, _ = paper_tables.check_request(
            table,
            rows or (),
            seeds,
            factor,
            data or (),
            held_out or (),
            changes,
            labelled,
            labelled_limit,
        )
        with screen.loading():
            from keras_bertfam.cli.reproduce import reproducing
        scores = reproducing.reproduce(
            table,
            output,
            rows or (),
            seeds,
            factor,
            data or (),
            held_out or (),
            changes,
            typer.echo,
            labelled,
            labelled_limit,
        )
    typer.echo(f"\n{paper_report.as_text(known, scores)}")
    typer.echo(f"\nWrote {output}: table.md, table.png, results.json, presets.")


@_command()
def adapt(
    files: Annotated[
        list[str], typer.Argument(help="Text files of a domain, or a prepared corpus.")
    ],
    preset: Annotated[
        str, typer.Option(help="Name or folder of a masked language model.")
    ],
    held_out: Annotated[
        list[str], typer.Option(help="Text files of the domain to measure on.")
    ],
    task: Annotated[
        str | None, typer.Option(help="Task to fine-tune on, as in finetune --task.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="The task's folder, or a file of your own.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="Column of the texts in your file.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column of the labels in your file.")
    ] = None,
    search: Annotated[
        bool,
        typer.Option(
            "--search", help="Fine-tune with all settings of the published grid."
        ),
    ] = False,
    steps: Annotated[int, typer.Option(help="Steps of training on the domain.")] = 1000,
    seeds: Annotated[
        int, typer.Option(help="Runs of each of the three, each with its own seed.")
    ] = 3,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Setting for both pre-training runs, such as batch_size=64. May "
            "be repeated.",
        ),
    ] = None,
    output: Annotated[str, typer.Option(help="Folder.")] = "adapted",
) -> None:
    """Compare a preset on a domain: as it is, trained further, and from scratch."""
    with _errors_as_messages():
        own: dict[str, Any] = {"text": text or None, "label": label}
        changes = dict(map(as_setting, change or ()))
        places = (files, preset, held_out, output)
        inputs.check_adapting(*places, steps, seeds, task, changes)
        inputs.check_finetuning(preset, task, data, None, **own, validation=None)
        with screen.loading():
            from keras_bertfam.cli import adapting
        runs = adapting.runs_of(files, preset, steps, changes)
        labelled = {"task": task, "data": data, **own, "search": search}
        scores = adapting.adapt(
            runs, preset, held_out, output, seeds, labelled, typer.echo
        )
    typer.echo(f"\n{adapting.table(scores)}")
    typer.echo(f"\nWrote {output}: table.md, table.png, results.json, presets.")


def _as_number(text):
    try:
        return float(text)
    except ValueError:
        return text


@_command()
def prepare(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Text, .jsonl or .parquet files; or a dataset, as tfds:NAME or "
            "hf:NAME."
        ),
    ],
    output: Annotated[str, typer.Option(help="Folder to write.")],
    tokenizer: Annotated[
        str | None, typer.Option(help=f"Tokenizer that makes the ids: {TOKENIZERS}.")
    ] = None,
    new_vocabulary: Annotated[
        int | None,
        typer.Option(
            help="Learn a vocabulary first, of at most this many tokens. "
            "--tokenizer then names its kind."
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            help="Family of the vocabulary to learn, or of the tokenizer's files."
        ),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help="Quality rule: c4, gopher, or a single one such as min_words=20. "
            "May be repeated."
        ),
    ] = None,
    keep_duplicates: Annotated[
        bool, typer.Option("--keep-duplicates", help="Keep all copies of a document.")
    ] = False,
    near_duplicates: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Leave out a document if it shares this much of its text "
            "with another. 0 keeps all. Default: 0.8, or 0 with --keep-duplicates.",
        ),
    ] = None,
    test_set: Annotated[
        list[str] | None,
        typer.Option(
            help="File of test data. Documents that contain its text are left "
            "out. May be repeated."
        ),
    ] = None,
    test_ngram: Annotated[
        int,
        typer.Option(
            min=1,
            help="With --test-set: this many of its words in a row count as its text.",
        ),
    ] = 13,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many files to write. Default: depends on the size."
        ),
    ] = None,
    feature: Annotated[str, typer.Option(help="Field that holds the text.")] = "text",
    split: Annotated[
        str | None,
        typer.Option(help="Split of a TFDS or Hugging Face dataset. Default: train."),
    ] = None,
    one_per_file: Annotated[
        bool,
        typer.Option("--one-per-file", help="Read each text file as one document."),
    ] = False,
    encoding: Annotated[str, typer.Option(help="Encoding of text files.")] = "utf-8",
    max_line_length: Annotated[
        int, typer.Option(min=1, help="The most characters a line may have.")
    ] = MAX_LINE_LENGTH,
    workers: Annotated[int, typer.Option(min=1, help="Processes on this machine.")] = 1,
    beam: Annotated[
        list[str] | None,
        typer.Option(
            help="Option for Beam, such as --beam=--runner=FlinkRunner. May be "
            "repeated."
        ),
    ] = None,
) -> None:
    """Turn text into shards of token ids with Apache Beam, once for all runs."""
    with _errors_as_messages():
        preparing.prepare(
            sources,
            output,
            tokenizer,
            new_vocabulary,
            family,
            rule or (),
            near_duplicates,
            keep_duplicates,
            typer.echo,
            test_sets=test_set or (),
            test_ngram=test_ngram,
            shards=shards,
            feature=feature,
            split=split,
            one_per_file=one_per_file,
            encoding=encoding,
            max_line_length=max_line_length,
            workers=workers,
            beam_arguments=beam or (),
        )


_TASKS = [name for name, task in TASKS.items() if task.can_be_learned]
_Texts = Annotated[
    list[str] | None,
    typer.Option(help="Column with the texts in your file. Twice for pairs."),
]
_Label = Annotated[str | None, typer.Option(help="Column of the labels in your file.")]


@_command()
def finetune(
    preset: Annotated[str, typer.Option(help="Name or folder of a checkpoint.")],
    task: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(_TASKS)}, {' or '.join(BENCHMARKS)}."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="The task's folder, or a file of your own. Default: download the task."
        ),
    ] = None,
    text: _Texts = None,
    label: _Label = None,
    validation: Annotated[
        str | None,
        typer.Option(help="File to validate on. Default: a share of your file."),
    ] = None,
    validation_split: Annotated[
        float, typer.Option(min=0, max=1, help="Share of your file to validate on.")
    ] = 0.1,
    output: Annotated[
        str | None, typer.Option(help="Preset folder for the best model.")
    ] = None,
    learning_rate: Annotated[
        list[float] | None,
        typer.Option(
            min=0, help="Peak rate to try. May be repeated. Default: published."
        ),
    ] = None,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Size to try. May be repeated. Default: published."),
    ] = None,
    epochs: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Number to try. May be repeated. Default: published."),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Seed of the runs. May be repeated: the median counts."),
    ] = None,
    sequence_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens in a row. Default: published.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Read at most this many examples of each split."),
    ] = None,
    packed: Annotated[
        bool,
        typer.Option("--packed", help="Pack several examples into a row in training."),
    ] = False,
    as_text: Annotated[
        bool,
        typer.Option(
            "--as-text", help="Let T5 or BART learn to write the answers as text."
        ),
    ] = False,
    search: Annotated[
        bool | None,
        typer.Option(
            help="Try all settings of the published grid, or only its middle. "
            "Default: all for a task, the middle for a file of your own."
        ),
    ] = None,
) -> None:
    """Fine-tune on a task, or a file, with the published recipe; report the metrics."""
    with _errors_as_messages():
        own: dict[str, Any] = {"text": text or None, "label": label}
        own["validation"] = validation
        inputs.check_finetuning(preset, task, data, output, **own)
        with screen.loading():
            from keras_bertfam.cli import finetuning
        finetuning.finetune(
            task,
            preset,
            data,
            output,
            learning_rates=learning_rate,
            batch_sizes=batch_size,
            epochs=epochs,
            seeds=seed or (0,),
            sequence_length=sequence_length,
            limit=limit,
            report=typer.echo,
            **own,
            validation_split=validation_split,
            packed=packed,
            as_text=as_text,
            search=search,
        )


_ENSEMBLE = (
    "Folder of another model of the same task. Answers are averaged. May be repeated."
)
_LINES = "Tables, or files of a text a line, if not blank. Default: standard input."


@_command()
def predict(
    preset: Annotated[
        str,
        typer.Argument(
            help=f"Folder of a fine-tuned task, one of {', '.join(inputs.PREDICT)}."
        ),
    ],
    files: Annotated[list[str] | None, typer.Argument(help=_LINES)] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="Column with the texts. Twice for pairs. Default: text; in CoNLL "
            "files, tokens."
        ),
    ] = None,
    ensemble: Annotated[list[str] | None, typer.Option(help=_ENSEMBLE)] = None,
) -> None:
    """Apply a fine-tuned model to texts, and print a line of JSON for each."""
    with _errors_as_messages():
        presets = [preset, *(ensemble or ())]
        for each in presets:
            inputs.check_task_folder(each)
            inputs.check_taken("predict", each)
        inputs.check_texts(files or ())
        with screen.loading():
            from keras_bertfam.cli import prediction
        model = prediction.load_tasks(presets)
        answers = prediction.predict(model, files or (), text or ())
        prediction.write(answers, typer.echo)


@_command()
def score(
    preset: Annotated[
        str,
        typer.Argument(help="Folder of a fine-tuned task that learned from labels."),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            help="A file of your own, or the task's folder. Default: download the task."
        ),
    ] = None,
    text: _Texts = None,
    label: _Label = None,
    task: Annotated[
        str | None, typer.Option(help=f"{', '.join(_TASKS)}. Not with your own file.")
    ] = None,
    split: Annotated[str, typer.Option(help="Part of the task.")] = "validation",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Read at most this many examples.")
    ] = None,
    ensemble: Annotated[list[str] | None, typer.Option(help=_ENSEMBLE)] = None,
) -> None:
    """Score a fine-tuned model on labelled examples, and print a line of JSON."""
    with _errors_as_messages():
        presets = [preset, *(ensemble or ())]
        for each in presets:
            inputs.check_task_folder(each)
            inputs.check_taken("score", each)
        inputs.check_scoring(task, data, text=text or None, label=label)
        with screen.loading():
            from keras_bertfam.cli import prediction, scoring
        model = prediction.load_tasks(presets)
        examples = scoring.load(model, task, data, split, text or (), label, limit)
        prediction.write([scoring.score(model, examples)], typer.echo)


@_command("fill-mask")
def fill_mask(
    preset: Annotated[str, typer.Argument(help="Name or folder of a checkpoint.")],
    files: Annotated[list[str] | None, typer.Argument(help=_LINES)] = None,
    top_k: Annotated[
        int, typer.Option(min=1, help="How many tokens to show for each mask.")
    ] = 5,
) -> None:
    """Fill the masks in texts, and print a line of JSON for each text."""
    with _errors_as_messages():
        inputs.check_findable(preset)
        inputs.check_taken("fill-mask", preset)
        inputs.check_texts(files or ())
        with screen.loading():
            from keras_bertfam.cli import prediction
        answers = prediction.fill_mask(preset, files or (), top_k)
        prediction.write(answers, typer.echo)


@_command()
def generate(
    preset: Annotated[str, typer.Argument(help="Name or folder of a checkpoint.")],
    prompts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Texts to continue, or to answer. Default: the lines of standard "
            "input."
        ),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(help="File with one prompt a line. May be repeated."),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The most tokens of a text, with the prompt that it "
            "continues. Default: the checkpoint's own, or 64.",
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help=f"How tokens are chosen: {', '.join(inputs.SAMPLERS)}. Default: the "
            "checkpoint's own, or greedy."
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=1e-6, help="Above 1, texts are more surprising; below 1, less."
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Draw from the likeliest tokens that together have this probability.",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="Choose among this many of the likeliest tokens."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the draws.")] = None,
    num_beams: Annotated[
        int | None, typer.Option(min=1, help="How many beams a beam search keeps.")
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(help="For a beam search: below 0, it prefers short texts."),
    ] = None,
    num_return_sequences: Annotated[
        int | None, typer.Option(min=1, help="How many texts to write for each prompt.")
    ] = None,
    min_new_tokens: Annotated[
        int | None, typer.Option(min=0, help="The fewest tokens to write.")
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(
            min=1e-6, help="Above 1, tokens that were used become less likely."
        ),
    ] = None,
    no_repeat_ngram_size: Annotated[
        int | None, typer.Option(min=0, help="Write no run of this many tokens twice.")
    ] = None,
) -> None:
    """Write texts from prompts, and print a line of JSON for each prompt."""
    options: dict[str, Any] = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "seed": seed,
        "num_beams": num_beams,
        "length_penalty": length_penalty,
        "num_return_sequences": num_return_sequences,
        "min_new_tokens": min_new_tokens,
        "repetition_penalty": repetition_penalty,
        "no_repeat_ngram_size": no_repeat_ngram_size,
    }
    options = {name: value for name, value in options.items() if value is not None}
    with _errors_as_messages():
        if sampler is not None:
            inputs.check_sampler(sampler)
            inputs.check_sampling(sampler, options)
        inputs.check_findable(preset)
        inputs.check_taken("generate", preset)
        inputs.check_texts(file or (), "file")
        with screen.loading():
            from keras_bertfam.cli import prediction
        model = prediction.load_writer(preset)
        if sampler is None:
            inputs.check_sampling(prediction.own_sampler(model), options)
        texts = prediction.prompts_of(prompts or (), file or (), sys.stdin)
        answers = prediction.generate(model, texts, max_length, sampler, options)
        prediction.write(answers, typer.echo)


@_command()
def analyse(
    preset: Annotated[str, typer.Argument(help="Name or folder of a checkpoint.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files with one text a line, or two with a tab between them. "
            "Default: standard input."
        ),
    ] = None,
    output: Annotated[
        str, typer.Option(help="The HTML page to write.")
    ] = "report.html",
    words: Annotated[
        str, typer.Option(help="Words to show in their contexts, such as play,bank.")
    ] = "",
    probe: Annotated[
        str | None,
        typer.Option(
            help="File of labels that probes learn: of words (.conllu, "
            ".conll), or of spans (JSON lines, as in edge probing)."
        ),
    ] = None,
    facts: Annotated[
        str | None,
        typer.Option(
            help="Facts to ask the model for: a folder or archive in LAMA's format."
        ),
    ] = None,
    labelled: Annotated[
        str | None,
        typer.Option(help="Table of labelled examples to score a fine-tuned model on."),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="Column with the texts of that table. Twice for pairs."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column with the labels of that table.")
    ] = None,
) -> None:
    """Write a page that shows how a model reads texts: its attention, layers, ..."""
    with _errors_as_messages():
        inputs.check_findable(preset)
        inputs.check_texts(files or ())
        for name, path in {"probe": probe, "labelled": labelled}.items():
            inputs.check_texts([path] if path is not None else [], name)
        if facts is not None:
            inputs.check_there(facts, "facts")
        inputs.check_new_file(output)
        with screen.loading():
            from keras_bertfam.cli import analysis
        analysis.analyse(
            preset,
            files or (),
            output,
            words=[word.strip() for word in words.split(",") if word.strip()],
            probe=probe,
            facts=facts,
            labelled=labelled,
            text=text or (),
            label=label,
        )
    typer.echo(f"Wrote {output}.")


@_command()
def export(
    preset: Annotated[str, typer.Argument(help="Preset folder.")],
    path: Annotated[str, typer.Argument(help="Folder to write, such as served/1.")],
    top_k: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many tokens to predict for each mask. Default: 5."
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(min=1, help="The most tokens of a text that the model writes."),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="How tokens are chosen, such as top_p. Default: the "
            "checkpoint's own, or greedy."
        ),
    ] = None,
    max_input_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="The most tokens to read of a text, or of a row of ids."
        ),
    ] = None,
) -> None:
    """Write a preset as a SavedModel that takes strings."""
    given: dict[str, Any] = {"top_k": top_k, "max_length": max_length}
    given |= {"sampler": sampler, "max_input_tokens": max_input_tokens}
    given = {name: value for name, value in given.items() if value is not None}
    with _errors_as_messages():
        check_export_paths(preset, path)
        if sampler is not None:
            inputs.check_sampler(sampler)
        inputs.check_export(preset, given)
        with screen.loading():
            from keras_bertfam.export import export_saved_model
        export_saved_model(preset, path, **given)
    typer.echo(f"Wrote {path}.")


class Format(enum.StrEnum):
    """List the libraries that `convert` writes for."""

    keras = "keras"
    transformers = "transformers"


@_command()
def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="Checkpoint: a folder, a file, a published name or an hf:// handle."
        ),
    ],
    destination: Annotated[str, typer.Argument(help="Folder to write.")],
    to: Annotated[
        Format, typer.Option(help="Library that is to load it.")
    ] = Format.keras,
    longformer: Annotated[
        int | None,
        typer.Option(
            min=1, help="Make a Longformer from it, for rows of this many tokens."
        ),
    ] = None,
    attention_window: Annotated[
        int,
        typer.Option(
            min=1, help="With --longformer: how many tokens each token attends to."
        ),
    ] = 512,
) -> None:
    """Convert a checkpoint, with its heads and tokenizer, for Keras or transformers."""
    with _errors_as_messages():
        inputs.check_conversion(source, destination, to.value)
        window = attention_window if longformer else None
        with screen.loading():
            from keras_bertfam.cli import conversion
        conversion.convert(source, destination, to.value, longformer, window)


@_command()
def demo(
    output: Annotated[str, typer.Option(help="Folder for the results.")] = "build/demo",
    epochs: Annotated[
        int, typer.Option(min=1, help="Epochs: passes over the text.")
    ] = 15,
) -> None:
    """Pre-train on Python's documentation, fill in masks, save, reload, serve."""
    with _errors_as_messages():
        inputs.folders.check_destination(os.path.join(output, "preset"))
    with screen.loading():
        from keras_bertfam.cli import demo as demo_steps
    demo_steps.run(output, epochs)
