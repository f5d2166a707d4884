"""Pre-train, from text files to the preset that is written."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import keras

from keras_bertfam import callbacks, distribution
from keras_bertfam.autograph import as_written
from keras_bertfam.cli.building import (
    build,
    compilation_of,
    make_tokenizer,
    rates_of,
)
from keras_bertfam.cli.clusters import cluster
from keras_bertfam.cli.inputs import (
    CHECKPOINTS,
    CONTENTS,
    GENERATOR,
    backup_folder,
    beside,
    check_run,
    contents_of_files,
    has_backup,
    kept_tokenizer,
    killed_run,
)
from keras_bertfam.cli.precision import device_and_bfloat16
from keras_bertfam.cli.runs import (
    AUTO,
    FILE_NAME,
    PRECISIONS,
    TOKENIZERS,
    PretrainingRun,
    by_language,
    languages_of,
)
from keras_bertfam.layers import (
    mark_languages,
    read_documents,
    read_tokens,
    read_translations,
    sample_corpora,
)
from keras_bertfam.layers.data.documents.reading import share_of_documents
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.layers.data.prepared.token_corpus import TokenCorpus
from keras_bertfam.layers.data.rows.batches import full_batches
from keras_bertfam.presets import folders
from keras_bertfam.presets.families.parts.phases import Phase
from keras_bertfam.presets.tokenizer_formats.tokenizer_sources import open_tokenizer
from keras_bertfam.presets.tokenizer_presets import load_tokenizer
from keras_bertfam.presets.working_folders import discard, working_folder
from keras_bertfam.tasks import train_in_phases
from keras_bertfam.tokenizers.texts import MixedDocuments
from keras_bertfam.types import Model, TFDataset
from keras_bertfam.whole_files import write_text

SAVE_FREQ = 500  # steps between two backups
_LEARNED = (None, *TOKENIZERS)
Documents: TypeAlias = TFDataset | TokenCorpus | MixedDocuments


def pretrain(run: PretrainingRun, report: Callable[[str], Any] = print) -> Model:
    """Pre-train by the settings of a run, and write its preset.

    With a `distribution`, every process must call it, with the same settings, files and
    shared folders. The first process writes the preset.

    Args:
        run: `PretrainingRun`.
        report: function that takes a line of text.

    Returns:
        The task.

    Raises:
        ValueError: as `begin` and `cluster`, and for settings that don't go together.
    """
    if run.distribution is None:
        return _pretrain(run, report)
    with cluster(run.distribution, run.model_parallel) as shares:
        by_tokens = run.dataset_arguments.get("tokens_per_batch") is not None
        if not by_tokens and run.batch_size % shares:
            raise ValueError(
                f"`batch_size` must be a multiple of the {shares} devices that share "
                f"each batch. Received: {run.batch_size}."
            )
        return _pretrain(run, report if distribution.is_chief() else lambda line: None)


def _pretrain(run, report):
    run, documents = begin(run, report)
    learned = (run.teacher or run.preset) is None and run.tokenizer in _LEARNED
    backup = backup_folder(run)
    if run.resume and not has_backup(backup):
        report(f"No backup found in {backup}: the run begins anew.")
    if learned and not isinstance(documents, TokenCorpus) and not kept_tokenizer(run):
        report(f"Learning a vocabulary of at most {run.vocabulary_size} tokens.")
    model = build(run, documents)
    model.recipe(report)
    try:
        model = train(run, model, documents)
    except SystemExit:  # raised by `BackupAndResume` when the run is told to end
        report("The same command with --resume continues the run.")
        raise
    except KeyboardInterrupt:
        if has_backup(backup):
            report(
                f"Stopped. The same command with --resume continues from the last "
                f"backup, in {backup}."
            )
        raise
    report(f"Wrote {run.output}. Its {FILE_NAME} repeats the run.")
    return model


def learn_vocabulary(run: PretrainingRun) -> int:
    """Learn the vocabulary of a run, and write its tokenizer.

    Args:
        run: `PretrainingRun`.

    Returns:
        How many tokens there are.
    """
    tokenizer = make_tokenizer(run, read_corpora(run))
    with folders.preset_aside(run.output) as folder:
        tokenizer.save_to_preset(folder)
    return int(tokenizer.vocabulary_size())


def with_precision(
    run: PretrainingRun, report: Callable[[str], Any] = print
) -> PretrainingRun:
    """Replace the precision `"auto"` of a run by float32 or bfloat16.

    Args:
        run: `PretrainingRun`.
        report: function that takes a line of text. It is told what was chosen, and of a
            given precision if it slows training down.

    Returns:
        The run, with a precision that isn't `"auto"`.
    """
    backend, given = keras.backend.backend(), run.precision
    if given == "float32":
        return run
    on, bfloat16_pays = device_and_bfloat16()
    if given == AUTO:
        chosen = "bfloat16" if bfloat16_pays else "float32"
        sure = "is" if bfloat16_pays else "isn't sure to be"
        report(
            f"Precision: {chosen}, as bfloat16 {sure} faster on this {on} with "
            f"{backend}."
        )
        return run.changed(precision=chosen)
    if on == "CPU" and not (bfloat16_pays and given == "bfloat16"):
        report(
            f"{given} may be slower than float32 on this CPU with {backend}. "
            f"`--precision {AUTO}` takes bfloat16 only where it is sure to be faster."
        )
    return run


def begin(
    run: PretrainingRun, report: Callable[[str], Any] = print
) -> tuple[PretrainingRun, Documents]:
    """Set seed and precision, and check what can be checked before training.

    Args:
        run: `PretrainingRun`.
        report: see `with_precision`.

    Returns:
        The run with a precision that isn't `"auto"`, that of the killed run if it goes
        on with one, and the documents, see `read_corpora`.

    Raises:
        ValueError: as `check_run`; for a tokenizer that doesn't exist; and for a
            prepared corpus with a vocabulary that is to be learned.
    """
    check_run(run)
    if run.tokenizer not in _LEARNED:
        open_tokenizer(str(run.tokenizer), run.family)
    if run.precision == AUTO and run.resume and has_backup(backup_folder(run)):
        run = run.changed(precision=killed_run(run).precision)
        report(f"Precision: {run.precision}, as in the killed run.")
    run = with_precision(run, report)
    keras.config.set_dtype_policy(PRECISIONS[run.precision])
    keras.utils.set_random_seed(run.seed)
    documents = read_corpora(run)
    if isinstance(documents, TokenCorpus):
        _check_prepared(run, documents)
    return run, documents


def _check_prepared(run, corpus):
    if run.new_words or run.one_per_file:
        name = "new_words" if run.new_words else "one_per_file"
        raise ValueError(
            f"`{name}` must be left out with a prepared corpus, whose text is tokens "
            f"already. Received: {getattr(run, name)}."
        )
    has_its_own = run.tokenizer is None and os.path.isdir(corpus.tokenizer_folder)
    known = run.teacher or run.preset or has_its_own
    if not known and run.tokenizer in _LEARNED:
        raise ValueError(
            "`tokenizer` must be the one that the corpus was prepared with. It may be "
            f"left out if it is in {corpus.tokenizer_folder!r}. Received: "
            f"{run.tokenizer!r}."
        )


def read_corpora(run: PretrainingRun) -> Documents:
    """Read what a run trains on; with a `mix_exponent`, a mix of several corpora.

    A corpus with two languages in its name, as `de+is`, holds translations.
    """
    if run.mix_exponent is None:
        return read(run, run.files)
    return sample_corpora(_corpora(run, by_language(run.files)), run.mix_exponent)


def read_validation(run: PretrainingRun) -> TFDataset | TokenCorpus | None:
    """Read what a run validates on, one language after the other.

    Raises:
        ValueError: for prepared corpora of several languages.
    """
    if not run.validation:
        return None
    told = run.validation_by_language()
    if told is None:
        return read(run, run.validation)
    first, *others = _corpora(run, told).values()
    if others and any(isinstance(each, TokenCorpus) for each in (first, *others)):
        raise ValueError(
            "`validation` must be text, or one prepared corpus. Received: "
            f"{[*run.validation]}."
        )
    for each in others:
        first = first.concatenate(each)
    return first


def _corpora(run, by_name):
    """Read corpora by name, and say of which languages their texts are."""
    corpora: Any = {}
    for name, files in by_name.items():
        languages = languages_of(name)
        if len(languages) == 2:
            names = ("feature", "encoding", "max_line_length")
            corpora[name] = read_translations(
                dict(zip(languages, files, strict=True)),
                **{each: getattr(run, each) for each in names},
            )
        else:
            corpora[name] = _marked(name, read(run, files))
    return corpora


@as_written
def _marked(language, documents):
    """Say of which language texts are. Rows that don't read it leave the marks out."""
    if isinstance(documents, TokenCorpus):
        return documents
    return documents.map(lambda text: mark_languages({language: text}), **PARALLEL)


def read(run: PretrainingRun, files: Sequence[str]) -> TFDataset | TokenCorpus:
    """Read the documents of files, or of one prepared corpus, with a run's settings."""
    if len(files) == 1 and os.path.isdir(files[0]):
        return read_tokens(files[0])
    names = ("feature", "one_per_file", "encoding", "max_line_length")
    return read_documents([*files], **{name: getattr(run, name) for name in names})


def train(run: PretrainingRun, model: Model, documents: Documents) -> Model:
    """Train a compiled task, and write its preset with the settings of the run.

    Args:
        run: `PretrainingRun`.
        model: a pre-training task.
        documents: what `dataset` of the preprocessor takes. Of a run with a
            `text_share`, that share of them is trained on.

    Returns:
        The task, which is a new one if phases changed its objective or encoder.
    """
    if run.text_share < 1:
        documents = share_of_documents(documents, run.text_share)
    chief = distribution.is_chief()
    with _alone(run) if chief else contextlib.nullcontext(backup_folder(run)) as backup:
        if chief:
            run.write(os.path.join(backup, FILE_NAME))
            _keep_text(run, model.preprocessor.tokenizer, backup)
        fit = _fit_phases if run.phases else _fit
        # A progress bar on a terminal, one line per epoch in a file.
        verbose = (1 if sys.stdout.isatty() else 2) if chief else 0
        model = fit(run, model, documents, _callbacks(run, backup), verbose)
        with distribution.gathered(model):
            if chief:
                save(run, model)
    return model


def _keep_text(run, tokenizer, backup):
    """Keep what a resumed run checks: the tokenizer, and what is in the files."""
    before = kept_tokenizer(run)
    if before is None:
        # Whatever a run without a backup has left is written over.
        tokenizer.save_to_preset(os.path.join(backup, "tokenizer"))
        contents = contents_of_files(run)
        write_text(os.path.join(backup, CONTENTS), json.dumps(contents))
    elif load_tokenizer(before).get_vocabulary() != tokenizer.get_vocabulary():
        given = run.preset or run.teacher or run.tokenizer
        raise ValueError(
            f"The vocabulary of {given!r} must be as it was in the killed run whose "
            f"state is in {backup}. It has changed."
        )


def _fit(run, model, documents, callbacks, verbose):
    def dataset(documents, **kwargs):
        settings = {"packing": run.packing, **run.dataset_arguments, **kwargs}
        by_tokens = settings.get("tokens_per_batch") is not None
        rows = None if by_tokens else run.batch_size
        return model.preprocessor.dataset(documents, rows, **settings)

    data = dataset(documents)
    held_out = None
    if run.validation:
        held_out = dataset(read_validation(run), training=False)
        if run.distribution:
            none = -1 if model.label_kind == "token or -1" else 0
            held_out = full_batches(held_out, run.batch_size, none)
    if run.steps_per_epoch is not None:
        data = data.repeat()
    model.fit(
        data,
        epochs=run.epochs,
        steps_per_epoch=run.steps_per_epoch,
        validation_data=held_out,
        callbacks=callbacks,
        verbose=verbose,
    )
    return model


def _fit_phases(run, model, documents, callbacks, verbose):
    # Each phase has a backup of its own.
    _, *others = callbacks
    return train_in_phases(
        model,
        documents,
        [Phase.of(each) for each in run.phases],
        backup_folder(run),
        validation=read_validation(run),
        batch_size=run.batch_size,
        save_freq=SAVE_FREQ,
        optimizer_arguments={**rates_of(run), **run.optimizer_arguments},
        dataset_arguments={"packing": run.packing, **run.dataset_arguments},
        compile_arguments=compilation_of(run),
        callbacks=others,
        verbose=verbose,
    )


@contextlib.contextmanager
def _alone(run):
    """Reserve the folder of a run's state for this process; remove it at the end."""
    folder = backup_folder(run)
    with working_folder(folder, run.output):
        try:
            yield folder
        except BaseException:
            if not has_backup(folder):
                discard(folder)
            raise
        discard(folder)


def save(run: PretrainingRun, model: Model) -> None:
    """Write the trained model and the settings of the run."""
    if hasattr(model, "generator"):  # an encoder of its own
        model.generator.save_to_preset(beside(run, GENERATOR))
    with folders.preset_aside(run.output) as folder:
        trained = model.student if hasattr(model, "student") else model
        trained.save_to_preset(folder)
        run.write(os.path.join(folder, FILE_NAME))


def _callbacks(run, backup):
    # The backup stays until the preset is written.
    chosen: list[keras.callbacks.Callback] = [
        callbacks.BackupAndResume(backup, SAVE_FREQ, delete_checkpoint=False)
    ]
    if run.tensorboard is not None:
        # All processes take part in the sums over devices, but only one writes the
        # logs.
        part = "" if distribution.is_chief() else "others"
        chosen.append(callbacks.TensorBoard(os.path.join(run.tensorboard, part)))
    if run.checkpoints:
        chosen.append(
            callbacks.PresetCheckpoint(
                beside(run, CHECKPOINTS),
                keep_last=run.checkpoints,
                monitor="val_loss" if run.validation else "loss",
            )
        )
    return chosen
