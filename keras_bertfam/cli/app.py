"""The commands of `python -m keras_bertfam`."""

import contextlib
import enum
from collections.abc import Iterator
from typing import Annotated

import keras
import typer

from keras_bertfam.callbacks import BackupAndResume
from keras_bertfam.cli import conversion, finetuning
from keras_bertfam.cli import demo as demo_steps
from keras_bertfam.cli.pretraining import Recipe
from keras_bertfam.export import export_saved_model
from keras_bertfam.layers import read_documents
from keras_bertfam.presets import folders

app = typer.Typer(
    help="Pre-training for the BERT family in Keras 3.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@contextlib.contextmanager
def _errors_as_messages() -> Iterator[None]:
    """Show what a user got wrong as one line, without a traceback."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise typer.BadParameter(str(error)) from error


@app.command()
def pretrain(
    files: Annotated[
        list[str], typer.Argument(help="Text files, blank lines between documents.")
    ],
    output: Annotated[str, typer.Option(help="Preset directory to write.")],
    architecture: Annotated[
        str, typer.Option(help="Name of a published BERT size.")
    ] = "bert_mini_en_uncased",
    vocabulary_size: int = 8000,
    cased: Annotated[bool, typer.Option(help="Keep case and accents.")] = False,
    sequence_length: int = 128,
    batch_size: int = 64,
    epochs: int = 10,
    steps_per_epoch: Annotated[
        int | None, typer.Option(help="Default: one pass over the text.")
    ] = None,
    learning_rate: float = 1e-4,
    strategy: Annotated[
        str, typer.Option(help="What to mask: tokens, words, ngrams or spans.")
    ] = "tokens",
    seed: int = 0,
    mixed_precision: Annotated[bool, typer.Option(help="Compute in bfloat16.")] = False,
    backup: Annotated[
        str | None, typer.Option(help="Directory to resume a killed run from.")
    ] = None,
) -> None:
    """Pre-train BERT as a masked language model on text files."""
    with _errors_as_messages():
        folders.check_destination(output)
        if mixed_precision:
            keras.config.set_dtype_policy("mixed_bfloat16")
        recipe = Recipe(
            architecture=architecture,
            vocabulary_size=vocabulary_size,
            lowercase=not cased,
            sequence_length=sequence_length,
            batch_size=batch_size,
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            learning_rate=learning_rate,
            strategy=strategy,
            seed=seed,
        )
        callbacks = [BackupAndResume(backup, save_freq=500)] if backup else []
        model, _ = recipe.run(read_documents(files), callbacks=callbacks)
        model.save_to_preset(output)
    typer.echo(f"Wrote {output}: MaskedLM.from_preset({output!r}) loads it.")


@app.command()
def finetune(
    preset: Annotated[str, typer.Option(help="Name or folder of a checkpoint.")],
    task: Annotated[
        str | None, typer.Option(help="sst2, mrpc, squad, conll2003, ...; all-glue.")
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
    validation_split: Annotated[float, typer.Option(help="This share.")] = 0.1,
    output: Annotated[
        str | None, typer.Option(help="Preset directory for the best model.")
    ] = None,
    learning_rate: Annotated[
        list[float] | None, typer.Option(help="May be repeated. Default: published.")
    ] = None,
    batch_size: Annotated[
        list[int] | None, typer.Option(help="May be repeated. Default: published.")
    ] = None,
    epochs: Annotated[
        list[int] | None, typer.Option(help="May be repeated. Default: published.")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="May be repeated: the median counts.")
    ] = None,
    sequence_length: int | None = None,
    limit: Annotated[int | None, typer.Option(help="Only so many examples.")] = None,
) -> None:
    """Fine-tune on a task, or a file, by the published recipe; report the metrics."""
    with _errors_as_messages():
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
            text=text or None,
            label=label,
            validation=validation,
            validation_split=validation_split,
        )


@app.command()
def export(
    preset: Annotated[str, typer.Argument(help="Preset directory.")],
    path: Annotated[str, typer.Argument(help="Where to write, such as served/1.")],
    top_k: Annotated[int, typer.Option(help="Predictions for each mask.")] = 5,
) -> None:
    """Write a SavedModel with string inputs from a preset."""
    with _errors_as_messages():
        export_saved_model(preset, path, top_k=top_k)
    typer.echo(f"Wrote {path}.")


class Format(enum.StrEnum):
    """What `convert` writes."""

    keras = "keras"
    transformers = "transformers"


@app.command()
def convert(
    source: Annotated[
        str, typer.Argument(help="Folder, file, published name or hf:// handle.")
    ],
    destination: Annotated[str, typer.Argument(help="Folder to write.")],
    to: Annotated[Format, typer.Option(help="Who is to load it.")] = Format.keras,
) -> None:
    """Convert a checkpoint, heads and tokenizer included."""
    with _errors_as_messages():
        conversion.convert(source, destination, to.value)


@app.command()
def demo(
    output: Annotated[str, typer.Option(help="Where results go.")] = "build/demo",
    epochs: Annotated[int, typer.Option(help="Passes over the text.")] = 15,
) -> None:
    """Pre-train on Python's documentation, fill in masks, save, reload, serve."""
    demo_steps.run(output, epochs)
