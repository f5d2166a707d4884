"""Convert checkpoints of every readable format to ours or to `transformers`'."""

import os

import keras
import typer

from keras_bertfam.cli.finetuning_heads import changed, lengths_of
from keras_bertfam.cli.inputs import check_conversion
from keras_bertfam.models.base import TokenBackbone
from keras_bertfam.models.families.longformer import make_longformer
from keras_bertfam.presets import folders, hub, inspection, preset_checks
from keras_bertfam.presets.checkpoints import formats
from keras_bertfam.presets.converting import conversion, exporting
from keras_bertfam.presets.converting.heads import task_name
from keras_bertfam.presets.names import list_presets
from keras_bertfam.presets.tokenizer_formats import tokenizer_files


def convert(
    source: str,
    destination: str,
    to: str,
    longest: int | None = None,
    window: int | None = None,
) -> None:
    """Convert a checkpoint with its heads and tokenizer, and report what was done.

    Args:
        source: folder, file, handle or published name of a checkpoint of any
            format that `from_preset` reads.
        destination: folder to write.
        to: `"keras"` or `"transformers"`.
        longest: int. Make a Longformer from the checkpoint, with this
            `max_sequence_length`; or `None`.
        window: int, the `attention_window` of that Longformer.

    Raises:
        ValueError: if both are one folder, or the destination can't be written.
    """
    check_conversion(source, destination, to)
    published = list_presets().get(source)
    path = os.fspath(hub.locate(published or source))
    model, tokenizer = folders.read_whole(path, lambda: _load(path, published))
    typer.echo(f"Read {source}: {type(model).__name__} with {_size(model)} weights.")
    if longest is not None:
        preprocessor = getattr(model, "preprocessor", None)
        tokenizer = tokenizer or getattr(preprocessor, "tokenizer", None)
        model = make_longformer(model, longest, window)
        if preprocessor is not None:
            lengths = lengths_of(preprocessor, longest)
            model.preprocessor = changed(preprocessor, lengths)
        typer.echo(f"Made a Longformer with {_size(model)} weights from it.")
    with folders.write_aside(destination) as folder:
        if to == "keras":
            model.save_to_preset(folder)
            if tokenizer is not None:
                tokenizer.save_to_preset(folder)
        elif tokenizer is None:
            model.export_to_transformers(folder)
        else:
            exporting.export_to_transformers(model, folder, tokenizer)
    if to == "transformers" and (lost := _without_a_place(model)):
        typer.echo(f"`transformers` has no place for {', '.join(lost)}.")
    typer.echo(f"Wrote {destination} for {to}.")


def _without_a_place(model):
    """List the settings of a task that the files of `transformers` don't have."""
    lost = []
    if getattr(model, "null_threshold", None) is not None:
        lost.append(f"null_threshold={model.null_threshold}")
    length = getattr(getattr(model, "preprocessor", None), "sequence_length", None)
    if length is not None:
        lost.append(f"sequence_length={length}")
    if hasattr(model, "export_to_sentence_transformers"):
        lost.append(
            "how vectors are made of states, and prompts, which "
            "`export_to_sentence_transformers()` writes"
        )
    return lost


def _size(model):
    return f"{model.count_params():,}"


def _load(path, published):
    """Load the model of a checkpoint, and a tokenizer if the model has none itself."""
    reader = formats.find_reader(path)
    if reader is None:
        return _load_preset(path)
    return _load_foreign(reader.open_source(path), published)


def _load_preset(path):
    """Load a task or backbone of a preset, and a tokenizer if it has none itself."""
    task = (
        preset_checks.read_json(path, preset_checks.TASK_FILE)
        if os.path.isdir(path)
        else None
    )
    if task is not None:
        cls = keras.saving.get_registered_object(task["registered_name"])
        return cls.from_preset(path), None
    model = TokenBackbone.from_preset(path)
    return model, preset_checks.load_serialized(path, inspection.TOKENIZER_FILE)


def _load_foreign(source, published=None):
    """Load the model and tokenizer of another library's checkpoint; print a summary."""
    if published is not None:
        source = published.complete(source)
    family = published and published.backbone
    name = task_name(source)
    report = conversion.ConversionReport(source)
    with typer.progressbar(length=len(source.tensors), label="Tensors") as bar:
        report.progress = bar.update
        if name is None:
            model = conversion.read_backbone(family or TokenBackbone, source, report)
        else:
            cls = keras.saving.get_registered_object(f"keras_bertfam>{name}")
            model = conversion.read_task(cls, source, report, backbone_cls=family)
    count = sum(len(theirs) for _, theirs in report.mapped)
    typer.echo(f"Mapped {count} tensors to {len(report.mapped)} variables.")
    for line in report.lines():
        typer.echo(line)
    tokenizer = None
    has_own = source.tokenizer_files and not tokenizer_files.refusal(source)
    if has_own and getattr(model, "preprocessor", None) is None:
        tokenizer = tokenizer_files.load_tokenizer(source)
    return model, tokenizer
