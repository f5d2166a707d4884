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
from keras_bertfam.cli.runs import VOCABULARY, PretrainingRun
from keras_bertfam.cli.screen import as_options, of_command
from keras_bertfam.datasets.task_data import TASKS
from keras_bertfam.presets.checkpoints.source import TOKENIZERS
from keras_bertfam.presets.inspection import check_export_paths
from keras_bertfam.text_files.sources import MAX_LINE_LENGTH


class _Commands(typer.core.TyperGroup):
    """The commands, with `--verbose` wherever it stands.

    It is added at the end of a command that has failed.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        others = [arg for arg in args[:end] if arg != "--verbose"]
        asked = ["--verbose"] * (len(others) < end)
        return super().parse_args(ctx, [*asked, *others, *args[end:]])


class _Command(typer.core.TyperCommand):
    """A command whose messages name its options, and that reads all it is given."""

    def invoke(self, ctx: Any) -> Any:
        given = {
            name: value
            for name, value in ctx.params.items()
            if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"
        }
        with of_command(self):
            with _errors_as_messages():
                combinations.check_options(self.name or "", given)
            return super().invoke(ctx)


app = typer.Typer(cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False)


_command = functools.partial(app.command, cls=_Command)


@app.callback()
def main(
    context: typer.Context,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show what the frameworks log, too.")
    ] = False,
) -> None:
    """Pre-training for the BERT family in Keras 3."""
    if not verbose:
        context.with_resource(screen.quiet())


@contextlib.contextmanager
def _errors_as_messages() -> Iterator[None]:
    """Show what a user got wrong as one line, without a traceback."""
    try:
        yield
    except BrokenPipeError:
        # Who reads has had enough, as `head`. Python would still write what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise typer.BadParameter(as_options(str(error))) from error
    except Exception as error:
        # What readers of files raise within `tf.data`, whose error has their traceback.
        found = re.search("ValueError: (.*)", str(error))
        if type(error).__name__ != "InvalidArgumentError" or not found:
            raise
        raise typer.BadParameter(as_options(found[1])) from error


# Each command first refuses what it can without the frameworks, which take seconds to
# load, and then imports what does the work.


def _pretrain(run: PretrainingRun) -> None:
    """Pre-train on text files by the recipe of a family, from a new vocabulary on."""
    with _errors_as_messages():
        inputs.check_run(run)
        with screen.loading():
            from keras_bertfam.cli import pretraining
        pretraining.pretrain(run, typer.echo)


_command("pretrain")(takes_a_run(_pretrain))


def _vocabulary(run: PretrainingRun) -> None:
    """Learn a vocabulary of text files, as `pretrain` would, and save its tokenizer."""
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
            help=f"{', '.join(sorted([*paper_tables.names(), *studies.STUDIES]))}; or "
            "a file of yours, .yaml."
        ),
    ],
    output: Annotated[
        str | None, typer.Option(help="Folder. Default: build/reproduce/TABLE.")
    ] = None,
    rows: Annotated[
        list[str] | None, typer.Option(help="Name of a row. May be repeated.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each row.")] = 2,
    scale: Annotated[
        str, typer.Option(help="Times as many updates; or paper, for its settings.")
    ] = "1",
    data: Annotated[
        list[str] | None, typer.Option(help="Text files, or a prepared corpus.")
    ] = None,
    held_out: Annotated[
        list[str] | None, typer.Option(help="The same to measure on.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of all runs, such as size=base."),
    ] = None,
    labelled: Annotated[
        str | None, typer.Option(help="Folder of labelled data, for some.")
    ] = None,
    sizes: Annotated[
        list[float] | None,
        typer.Option(help="Width of electra-compute's generator. May be repeated."),
    ] = None,
) -> None:
    """Pre-train a paper's table row by row; ours beside the paper's, with spread."""
    stem = os.path.splitext(os.path.basename(table))[0]
    output = output or os.path.join("build", "reproduce", stem)
    with _errors_as_messages():
        factor = scale if scale == paper_tables.PAPER else _as_number(scale)
        changes = dict(map(as_setting, change or ()))
        if table in studies.STUDIES:
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
                "`sizes` must be left out but for electra-compute. Received: "
                f"{[*sizes]}."
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
        )
    typer.echo(f"\n{paper_report.as_text(known, scores)}")
    typer.echo(f"\nWrote {output}: table.md, table.png, results.json, presets.")


@_command()
def adapt(
    files: Annotated[
        list[str], typer.Argument(help="Text files of a domain, or a prepared corpus.")
    ],
    preset: Annotated[str, typer.Option(help="Of a masked language model.")],
    held_out: Annotated[
        list[str], typer.Option(help="Text of the domain to measure on.")
    ],
    task: Annotated[
        str | None, typer.Option(help="To fine-tune on, as of finetune.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="The task's folder, or a file of yours.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="Column of the texts in your file.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column of the labels in your file.")
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Fine-tune by the whole published grid.")
    ] = False,
    steps: Annotated[int, typer.Option(help="Updates on the domain.")] = 1000,
    seeds: Annotated[int, typer.Option(help="Runs of each way.")] = 3,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of both runs, such as batch_size=64."),
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
        list[str], typer.Argument(help="Text, .jsonl or .parquet; tfds:NAME, hf:NAME.")
    ],
    output: Annotated[str, typer.Option(help="Folder to write.")],
    tokenizer: Annotated[
        str | None, typer.Option(help=f"Whose ids are written: {TOKENIZERS}.")
    ] = None,
    new_vocabulary: Annotated[
        int | None, typer.Option(help="Learn a vocabulary of so many tokens first.")
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(help="Whose vocabulary to learn, or whose the files are."),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(help="c4, gopher, or such as min_words=20. May be repeated."),
    ] = None,
    keep_duplicates: Annotated[
        bool, typer.Option("--keep-duplicates", help="Keep all of equal documents.")
    ] = False,
    near_duplicates: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Leave out a document that shares so much of its text with another; "
            "0 keeps all.",
        ),
    ] = 0.8,
    test_set: Annotated[
        list[str] | None,
        typer.Option(help="File whose text no document may have. May be repeated."),
    ] = None,
    test_ngram: Annotated[
        int, typer.Option(min=1, help="So many of its words in a row are its text.")
    ] = 13,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Files to write. Default: by the size.")
    ] = None,
    feature: Annotated[str, typer.Option(help="Field of the text.")] = "text",
    split: Annotated[
        str, typer.Option(help="Part of a dataset of TFDS or Hugging Face.")
    ] = "train",
    one_per_file: Annotated[
        bool, typer.Option("--one-per-file", help="A text file is one document.")
    ] = False,
    encoding: Annotated[str, typer.Option(help="Encoding of text files.")] = "utf-8",
    max_line_length: Annotated[
        int, typer.Option(min=1, help="Most characters of a line.")
    ] = MAX_LINE_LENGTH,
    workers: Annotated[int, typer.Option(min=1, help="Processes of this machine.")] = 1,
    beam: Annotated[
        list[str] | None,
        typer.Option(help="Option of Beam, such as --beam=--runner=FlinkRunner."),
    ] = None,
) -> None:
    """Make shards of token ids of text by Apache Beam, once for all runs."""
    with _errors_as_messages():
        preparing.prepare(
            sources,
            output,
            tokenizer,
            new_vocabulary,
            family,
            rule or (),
            near_duplicates,
            typer.echo,
            exact_duplicates=not keep_duplicates,
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


@_command()
def finetune(
    preset: Annotated[str, typer.Option(help="Name or folder of a checkpoint.")],
    task: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(_TASKS)}, {' or '.join(BENCHMARKS)}."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="The task's folder; default: download. Or a file of yours."),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="Column of the texts in your file. Twice for pairs."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column of the labels in your file.")
    ] = None,
    validation: Annotated[
        str | None, typer.Option(help="File to validate on. Default: a share of yours.")
    ] = None,
    validation_split: Annotated[
        float, typer.Option(min=0, max=1, help="This share.")
    ] = 0.1,
    output: Annotated[
        str | None, typer.Option(help="Preset directory for the best model.")
    ] = None,
    learning_rate: Annotated[
        list[float] | None,
        typer.Option(min=0, help="May be repeated. Default: published."),
    ] = None,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(min=1, help="May be repeated. Default: published."),
    ] = None,
    epochs: Annotated[
        list[int] | None,
        typer.Option(min=1, help="May be repeated. Default: published."),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="May be repeated: the median counts.")
    ] = None,
    sequence_length: Annotated[int | None, typer.Option(min=1)] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only so many examples.")
    ] = None,
    packed: Annotated[
        bool, typer.Option("--packed", help="Examples share rows in training.")
    ] = False,
    as_text: Annotated[
        bool, typer.Option("--as-text", help="T5 or BART learns to write the answers.")
    ] = False,
    search: Annotated[
        bool | None,
        typer.Option(
            help="Train the whole published grid, or its middle only. "
            "Default: the grid for a task, the middle for a file of yours."
        ),
    ] = None,
) -> None:
    """Fine-tune on a task, or a file, by the published recipe; report the metrics."""
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


_LINES = "Tables, or files with a text a line. Default: standard input."


@_command()
def predict(
    preset: Annotated[
        str,
        typer.Argument(help=f"Directory of one of {', '.join(inputs.PREDICT)}."),
    ],
    files: Annotated[list[str] | None, typer.Argument(help=_LINES)] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="Column of the texts. Twice for pairs.")
    ] = None,
    ensemble: Annotated[
        list[str] | None,
        typer.Option(help="Another one, to answer on average with. May be repeated."),
    ] = None,
) -> None:
    """Answer examples from files or standard input, each with a line of JSON."""
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


@_command("fill-mask")
def fill_mask(
    preset: Annotated[str, typer.Argument(help="Name or folder of a checkpoint.")],
    files: Annotated[list[str] | None, typer.Argument(help=_LINES)] = None,
    top_k: Annotated[int, typer.Option(min=1, help="Tokens for each mask.")] = 5,
) -> None:
    """Fill the masks in texts from files or standard input, in lines of JSON."""
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
        typer.Argument(help="Texts to go on with, or to answer. Default: stdin."),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(help="File with a prompt a line. May be repeated."),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tokens of a text, its beginning included. Default: the checkpoint's "
            "own, or 64.",
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
        float | None, typer.Option(min=1e-6, help="Above 1 for more surprising texts.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Of the likeliest tokens so much in all."),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Of so many of the likeliest tokens.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of what is drawn.")] = None,
    num_beams: Annotated[
        int | None, typer.Option(min=1, help="Texts that a beam search goes on with.")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Of a beam search; below 0 for short texts.")
    ] = None,
    num_return_sequences: Annotated[
        int | None, typer.Option(min=1, help="Texts for each prompt.")
    ] = None,
    min_new_tokens: Annotated[
        int | None, typer.Option(min=0, help="The least tokens that are written.")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(min=1e-6, help="Above 1 for fewer repetitions.")
    ] = None,
    no_repeat_ngram_size: Annotated[
        int | None, typer.Option(min=0, help="No run of so many tokens comes twice.")
    ] = None,
) -> None:
    """Write texts from prompts, each with a line of JSON."""
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
        inputs.check_sampler(sampler or "greedy")
        inputs.check_sampling(sampler or "greedy", options)
        inputs.check_findable(preset)
        inputs.check_taken("generate", preset)
        inputs.check_texts(file or (), "file")
        with screen.loading():
            from keras_bertfam.cli import prediction
        model = prediction.load_writer(preset)
        texts = prediction.prompts_of(prompts or (), file or (), sys.stdin)
        answers = prediction.generate(model, texts, max_length, sampler, options)
        prediction.write(answers, typer.echo)


@_command()
def analyse(
    preset: Annotated[str, typer.Argument(help="Name or folder of a checkpoint.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(help="With a text a line, or two and a tab. Default: stdin."),
    ] = None,
    output: Annotated[str, typer.Option(help="The page to write.")] = "report.html",
    words: Annotated[
        str, typer.Option(help="Words to show in their contexts, as play,bank.")
    ] = "",
    probe: Annotated[
        str | None,
        typer.Option(
            help="Labels to probe for: of words in .conllu or .conll, of spans in JSON "
            "lines as edge probing has them."
        ),
    ] = None,
    facts: Annotated[
        str | None,
        typer.Option(help="Facts to ask for: a folder or archive in LAMA's format."),
    ] = None,
    labelled: Annotated[
        str | None, typer.Option(help="Table of examples to score the task on.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="Column of the texts in it. Twice for pairs."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column of the labels in it.")
    ] = None,
) -> None:
    """Write a page that shows what a model makes of texts: attention, layers, ..."""
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
    preset: Annotated[str, typer.Argument(help="Preset directory.")],
    path: Annotated[str, typer.Argument(help="Where to write, such as served/1.")],
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Predictions for each mask. Default: 5.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a text that is written.")
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="How a text is written, as top_p. Default: the checkpoint's own, or "
            "greedy."
        ),
    ] = None,
    max_input_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of a text that are read, or of a row of ids."),
    ] = None,
) -> None:
    """Write a SavedModel with string inputs from a preset."""
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
    """What `convert` writes."""

    keras = "keras"
    transformers = "transformers"


@_command()
def convert(
    source: Annotated[
        str, typer.Argument(help="Folder, file, published name or hf:// handle.")
    ],
    destination: Annotated[str, typer.Argument(help="Folder to write.")],
    to: Annotated[Format, typer.Option(help="Who is to load it.")] = Format.keras,
    longformer: Annotated[
        int | None,
        typer.Option(help="Make a Longformer for rows of so many tokens of it."),
    ] = None,
    attention_window: Annotated[
        int, typer.Option(help="How many tokens each of the Longformer's sees.")
    ] = 512,
) -> None:
    """Convert a checkpoint, heads and tokenizer included."""
    with _errors_as_messages():
        inputs.check_conversion(source, destination, to.value)
        window = attention_window if longformer else None
        with screen.loading():
            from keras_bertfam.cli import conversion
        conversion.convert(source, destination, to.value, longformer, window)


@_command()
def demo(
    output: Annotated[str, typer.Option(help="Where results go.")] = "build/demo",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the text.")] = 15,
) -> None:
    """Pre-train on Python's documentation, fill in masks, save, reload, serve."""
    with _errors_as_messages():
        inputs.folders.check_destination(os.path.join(output, "preset"))
    with screen.loading():
        from keras_bertfam.cli import demo as demo_steps
    demo_steps.run(output, epochs)
