"""Pre-train in phases with different rows, masks, languages, rates or objectives."""

import dataclasses
import glob
import inspect
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_bertfam import distribution, lazy, optimizers
from keras_bertfam.arguments import check_number, checked
from keras_bertfam.callbacks.backup import BackupAndResume
from keras_bertfam.callbacks.preset_checkpoint import PresetCheckpoint
from keras_bertfam.optimizers.pretraining import resolve_schedule
from keras_bertfam.parsing import read_json
from keras_bertfam.presets.families.parts.objectives import OBJECTIVES
from keras_bertfam.presets.families.parts.phases import Phase
from keras_bertfam.tasks.recipes import pretraining_recipe
from keras_bertfam.types import Model, Path
from keras_bertfam.whole_files import write_text

_FILE = "phases.json"
_COUNTING = (BackupAndResume, PresetCheckpoint, keras.callbacks.TensorBoard)
# What a change of the objective leaves of a preprocessor's settings.
_KEPT = ("languages", "separators")


@checked
def pretraining_phases(
    family: str, size: str | None = None, total_steps: int | None = None
) -> list[Phase]:
    """Give the phases in which a family was pre-trained.

    Rates, lengths, masks, exponents of languages, objectives, the backbone's arguments
    and `batch_size` are the published ones. Use `dataclasses.replace` for smaller
    batches.

    Args:
        family: see `pretraining_recipe`.
        size: see `pretraining_recipe`.
        total_steps: int or `None`. The steps of all phases together, divided among them
            in the published proportions; `None` for the published numbers.

    Returns:
        A list of `Phase`; a single one for a family that was trained in one phase.

    Raises:
        ValueError: as `pretraining_recipe`; for fewer steps than phases; and for a
            recipe without a number of steps.

    Example:

    ```python
    phases = keras_bertfam.tasks.pretraining_phases("bert", total_steps=1000)
    [(phase.steps, phase.sequence_length) for phase in phases]
    # [(900, 128), (100, 512)]
    ```
    """
    recipe = pretraining_recipe(family, size)
    found = [phase for each in (recipe, *recipe.phases) for phase in _phases_of(each)]
    published = sum(steps for _, steps in found)
    wanted = published if total_steps is None else total_steps
    if wanted < len(found):
        raise ValueError(
            f"`total_steps` must be at least {len(found)}, one for each phase. "
            f"Received: {total_steps}."
        )
    steps = _shared([share for _, share in found], wanted)
    return [
        dataclasses.replace(phase, steps=count)
        for (phase, _), count in zip(found, steps, strict=True)
    ]


def _phases_of(recipe):
    """List the phases of a recipe, and their published steps."""
    if recipe.total_steps is None:
        raise ValueError(
            "`family` must be one whose recipe has a number of steps. Received one of "
            f"{recipe.task}: {recipe.source}."
        )
    said = {**recipe.masking, **recipe.task_arguments}.items()
    objective = next(
        (
            name
            for name, each in OBJECTIVES.items()
            if each.task == recipe.task and each.arguments.items() <= said
        ),
        None,
    )
    # A setting that a recipe leaves out isn't taken from the phase before.
    rates = {"power": 1.0, "end_share": 0.0, **recipe.optimizer_arguments()}
    # The recipe's lengths of masks are for rows of 512 tokens; a preprocessor scales
    # them.
    masking = {n: v for n, v in recipe.masking.items() if not n.endswith("_length")}
    lengths = recipe.lengths or ((1.0, recipe.sequence_length),)
    for place, (share, length) in enumerate(lengths):
        first = place == 0
        steps = round(recipe.total_steps * share)
        phase = Phase(
            steps,
            recipe.batch_size if first else None,
            length,
            objective if first else None,
            recipe.mix_exponent if first else None,
            learning_rate=rates.pop("learning_rate") if first else None,
            warmup_steps=rates.pop("warmup_steps") if first else None,
            optimizer_arguments=rates if first else {},
            preprocessor_arguments=masking if first else {},
            backbone_arguments=recipe.backbone_arguments if first else {},
        )
        yield phase, steps


def _shared(shares, total):
    """Divide a number in proportion to shares, with at least 1 for each."""
    ends = [sum(shares[: k + 1]) * total / sum(shares) for k in range(len(shares))]
    steps, done = [], 0
    for place, end in enumerate(ends):
        left = len(ends) - place - 1
        steps.append(min(max(1, round(end) - done), total - done - left))
        done += steps[-1]
    return steps


@checked
def train_in_phases(
    model: Model,
    documents: Any,
    phases: Sequence[Phase],
    backup_dir: Path | None = None,
    *,
    validation: Any = None,
    batch_size: int = 32,
    save_freq: int = 500,
    optimizer_arguments: Mapping[str, Any] | None = None,
    dataset_arguments: Mapping[str, Any] | None = None,
    compile_arguments: Mapping[str, Any] | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    **kwargs: Any,
) -> Model:
    """Pre-train a task in phases; after a kill, continue with the next batch.

    Each phase is a `fit()` of one epoch with the phase's steps, on a dataset from its
    own preprocessor. That preprocessor's seed is the task's plus the phase's number. If
    the objective or the backbone's arguments change, a new task takes over the weights:
    all weights of the backbone, and those of heads with the same form. The task is
    compiled anew wherever a schedule begins.

    Each phase reads the documents from the first one on. So short phases on much text
    begin with the same text, and never see its end, unless `dataset_arguments` have
    `shuffle_documents`, whose order differs from phase to phase.

    Args:
        model: a task of pre-training with its preprocessor.
        documents: the documents for `dataset` of the preprocessor. Phases with settings
            of languages need a mixture, see `keras_bertfam.layers.sample_corpora`.
        phases: list of `Phase`.
        backup_dir: path of a folder for backups, see `BackupAndResume`; `None` for no
            backups. After a kill, the same call continues from them. The folder stays
            after the last phase: delete it when the model is saved.
        validation: documents to measure on after each phase, with its rows and masks;
            or `None`.
        batch_size: int. Rows in a batch, until a phase sets another number.
        save_freq: int. Batches between backups.
        optimizer_arguments: dict of arguments of `pretraining_optimizer` that replace
            the published ones, until a phase sets others; or `None`.
        dataset_arguments: dict of arguments of `dataset`, likewise; or `None`.
        compile_arguments: dict of other arguments of `compile`, or `None`.
        callbacks: list of callbacks for each `fit()`. Those that count steps are
            refused, because steps begin anew: `BackupAndResume`, `PresetCheckpoint`
            and `TensorBoard`.
        **kwargs: arguments of `fit()`, such as `verbose`, but not `epochs`.

    Returns:
        The trained task, which is a new one if the objective or the backbone changed.

    Raises:
        ValueError: before anything is trained, for no phases, arguments that a phase
            can't have, rows longer than the backbone's positions, an objective whose
            rows have no languages after one whose rows have, or a backup of other
            phases. At a phase's start, for unknown arguments of the backbone, or
            arguments that would change its weights.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    Phase = keras_bertfam.tasks.Phase
    model = keras_bertfam.tasks.train_in_phases(model, documents, [
        Phase(2, batch_size=4, preprocessor_arguments={"mask_selection_rate": 0.3}),
        Phase(1, preprocessor_arguments={"mask_selection_rate": 0.15}),
    ])
    ```
    """
    check_number("save_freq", save_freq, 1, 2**31 - 1)
    _check(model, phases, callbacks)
    given = {"epochs", "initial_epoch", "steps_per_epoch"} & kwargs.keys()
    if given:
        raise ValueError(
            "Phases count steps, so these arguments of `fit()` must be left out. "
            f"Received: {sorted(given)}."
        )
    parts = [*_plan(model, documents, phases)]
    _check_rates(model, phases, parts, optimizer_arguments or {})
    folder = None if backup_dir is None else os.fspath(backup_dir)
    if folder is not None:
        _check_backup(folder, phases)
    begin = 0 if folder is None else _last_backup(folder, len(phases))
    rates = {**(optimizer_arguments or {})}
    rows = {"batch_size": batch_size, **(dataset_arguments or {})}
    fed = [*_fed(parts, phases, rows, begin)]  # or an error before anything is trained
    for number, (phase, part) in enumerate(zip(phases, parts, strict=True)):
        rates |= phase.rates()
        model = _taken_over(model, part, phase)
        if part.begins:
            settings = {**model.optimizer_defaults, **rates}
            optimizer = optimizers.pretraining_optimizer(**settings)
            model.compile(optimizer, **(compile_arguments or {}))
            resolve_schedule(model.optimizer, part.schedule)
        if number < begin:
            continue
        data, rows = fed[number]
        held_out = None
        if validation is not None:
            held_out = part.preprocessor.dataset(validation, **rows, training=False)
        own: list[Any] = [*callbacks]
        if folder is not None:
            own.append(_Backup(_place(folder, number), save_freq))
        model.fit(
            data,
            steps_per_epoch=phase.steps,
            validation_data=held_out,
            callbacks=own,
            **kwargs,
        )
        if folder is not None and number and distribution.is_chief():
            shutil.rmtree(_place(folder, number - 1), ignore_errors=True)
    return model


def _fed(parts, phases, rows, begin):
    """Yield each phase's dataset, or `None` before phase `begin`, and its arguments."""
    for number, (phase, part) in enumerate(zip(phases, parts, strict=True)):
        rows = {**rows}
        if phase.batch_size is not None:
            rows["batch_size"] = phase.batch_size
            rows.pop("tokens_per_batch", None)
        rows |= phase.dataset_arguments
        by_tokens = rows.get("tokens_per_batch") is not None
        given = {**rows, "batch_size": None} if by_tokens else rows
        data = None
        if number >= begin:
            data = part.preprocessor.dataset(part.documents, **given).repeat()
        yield data, given


class _Backup(BackupAndResume):
    """Backs up a phase's start, too, with everything that is new in it."""

    def __init__(self, folder, save_freq):
        super().__init__(folder, save_freq, delete_checkpoint=False)

    def on_epoch_begin(self, epoch, logs=None):
        resumed = os.path.exists(self._path)
        super().on_epoch_begin(epoch, logs)
        if not resumed:
            if not self.model.optimizer.built:
                self.model.optimizer.build(self.model.trainable_variables)
            self._save(epoch, 0)


@dataclasses.dataclass
class _Part:
    """Hold the parts of a phase, and the steps of its schedule.

    `begins` tells whether a schedule begins with the phase.
    """

    cls: Any
    preprocessor: Any
    documents: Any
    begins: bool
    schedule: int


def _check(model, phases, callbacks):
    if model.preprocessor is None:
        raise ValueError("`model` must have a preprocessor. Received: none.")
    of_phases = not isinstance(phases, str | Mapping) and all(
        isinstance(phase, Phase) for phase in phases
    )
    if not of_phases or not phases:
        raise ValueError(
            f"`phases` must be a list of one `Phase` or more. Received: {phases!r}."
        )
    counting = [c for c in callbacks if isinstance(c, _COUNTING)]
    if counting:
        raise ValueError(
            "`callbacks` of phases must not count steps or compare values, as both "
            "begin anew in each phase; for backups there is `backup_dir`. Received: "
            f"{type(counting[0]).__name__}."
        )
    longest = getattr(model.backbone, "max_sequence_length", None)
    for number, phase in enumerate(phases):
        longest = phase.backbone_arguments.get("max_sequence_length", longest)
        if None not in (longest, phase.sequence_length):
            if phase.sequence_length > longest:
                raise ValueError(
                    f"`sequence_length` must be at most {longest}, the backbone's "
                    f"positions. Received in phase {number}: {phase.sequence_length}."
                )


def _check_rates(model, phases, parts, rates):
    """Make each phase's optimizer, which raises an error for unknown arguments."""
    for phase, part in zip(phases, parts, strict=True):
        rates = {**rates, **phase.rates()}
        made = optimizers.pretraining_optimizer(**{**model.optimizer_defaults, **rates})
        if part.begins:
            resolve_schedule(made, part.schedule)


def _plan(model, mixture, phases):
    cls, preprocessor = type(model), model.preprocessor
    documents, exponent, languages = mixture, None, None
    kept: dict[str, Any] = {}
    for number, phase in enumerate(phases):
        before, former = cls, preprocessor
        kept |= {n: getattr(former, n) for n in _KEPT if hasattr(former, n)}
        changes = dict(phase.preprocessor_arguments)
        if phase.objective is not None:
            objective = OBJECTIVES[phase.objective]
            cls = _class_of(objective.task)
            changes = {**objective.arguments, **changes}
        if phase.sequence_length is not None:
            changes["sequence_length"] = phase.sequence_length
        if number or changes or cls is not before:
            seed = model.preprocessor.seed + number
            preprocessor = _fed_anew(
                preprocessor, before, cls, {"seed": seed} | changes, kept
            )
        pairs = [
            getattr(each, "sentence_objective", None) for each in (former, preprocessor)
        ]
        if cls is before and pairs[0] != pairs[1]:
            raise ValueError(
                "`objective` of a phase must have the sentence objective of the task, "
                f"{pairs[0]!r}. Received in phase {number}: {pairs[1]!r}."
            )
        if phase.mix_exponent is not None or phase.languages is not None:
            if not hasattr(documents, "changed"):
                raise ValueError(
                    "`documents` must be mixed by `sample_corpora` if a phase has "
                    "`mix_exponent` or `languages`. Received: "
                    f"{type(mixture).__name__}."
                )
            if phase.mix_exponent is not None:
                exponent = phase.mix_exponent
            languages = languages if phase.languages is None else phase.languages
            documents = mixture.changed(exponent, languages)
        own = phase.rates() or phase.backbone_arguments or cls is not before
        begins = bool(number == 0 or own)
        steps = phase.steps
        for later in phases[number + 1 :]:
            other = later.objective is not None
            other = other and _class_of(OBJECTIVES[later.objective].task) is not cls
            if later.rates() or later.backbone_arguments or other:
                break
            steps += later.steps
        yield _Part(cls, preprocessor, documents, begins, steps)


def _class_of(name):
    lazy.load_all()  # importing it at the top would be circular
    return keras.saving.get_registered_object(f"keras_bertfam>{name}")


def _fed_anew(preprocessor, before, cls, changes, kept):
    """Make the preprocessor of a phase from that of the phase before.

    One of another class has what is `kept` of earlier ones, if it takes that.
    """
    made = type(preprocessor)
    if cls is before:
        config = preprocessor.get_config()
        for name in ("tokenizer", "name", "trainable", "dtype", "config_file"):
            config.pop(name, None)
    else:
        made = cls.preprocessor_cls
        if cls.__name__ == "TextToText":
            raise ValueError(
                "`objective` of a phase must train an encoder or a decoder alone. "
                "Received one of TextToText."
            )
        takes = inspect.signature(made).parameters
        if kept.get("languages") and "languages" not in takes:
            raise ValueError(
                "`objective` of a phase must be one whose rows have languages, such as "
                f"'mlm', after a phase with languages={kept['languages']}. Received "
                f"one of {cls.__name__}."
            )
        config = {n: value for n, value in kept.items() if n in takes}
        config["sequence_length"] = preprocessor.sequence_length
    return made(preprocessor.tokenizer, **{**config, **changes})


def _taken_over(model, part, phase):
    """Give the task of a phase, with the weights of the task of the phase before."""
    backbone, cls = model.backbone, part.cls
    changes = dict(phase.backbone_arguments)
    if cls is not type(model) and hasattr(backbone, "causal"):
        causal = cls.__name__ == "CausalLM"
        if causal != backbone.causal:
            changes["causal"] = causal
    if cls is type(model) and not changes:
        model.preprocessor = part.preprocessor
        return model
    if changes:
        old = backbone
        backbone = type(old).from_config({**old.get_config(), **changes})
        _check_weights(old, backbone, changes)
        backbone.set_weights(old.get_weights())
    own = {}
    if cls is type(model):
        known = {*inspect.signature(cls.__init__).parameters}
        known -= {"self", "backbone", "preprocessor", "compile", "kwargs"}
        own = {n: v for n, v in model.get_config().items() if n in known}
    new = cls(backbone, part.preprocessor, **own)
    if cls is type(model):
        new.set_weights(model.get_weights())
    else:
        old_head, new_head = _token_head(model), _token_head(new)
        if old_head and _shapes(old_head) == _shapes(new_head):
            new_head.set_weights(old_head.get_weights())
    return new


def _token_head(task):
    """Give the head of a task that predicts tokens, or its only head."""
    return getattr(task, "masked_lm_head", None) or getattr(task, "head", None)


def _shapes(layer):
    return [tuple(weight.shape) for weight in layer.weights] if layer else None


def _check_weights(old, new, changes):
    if _shapes(old) != _shapes(new):
        raise ValueError(
            "`backbone_arguments` of a phase must not change the form of the weights. "
            f"Received: {changes!r}."
        )


def _place(folder, number):
    return os.path.join(folder, f"phase-{number}")


def _last_backup(folder, count):
    """Find the last phase that has a backup; the first if none has."""
    found = [
        number
        for number in range(count)
        if os.path.exists(os.path.join(_place(folder, number), "backup.npz"))
    ]
    return found[-1] if found else 0


def _check_backup(folder, phases):
    """Write a description of the phases, or compare it with the one in the folder."""
    path = os.path.join(folder, _FILE)
    places = glob.glob(os.path.join(glob.escape(folder), "phase-*", "backup.npz"))
    plain = [dataclasses.asdict(phase) for phase in phases]
    said = json.loads(json.dumps(plain, default=_plain))
    if places and os.path.exists(path):
        before = read_json(path)
        if before != said:
            raise ValueError(
                "`phases` must be those of the killed run whose state is in "
                f"{folder!r}. Delete that folder to begin anew. Received: {said}, in "
                f"place of {before}."
            )
    elif distribution.is_chief():
        os.makedirs(folder, exist_ok=True)
        write_text(path, json.dumps(said, indent=1))


def _plain(value):
    """Describe a value for which JSON has no form, the same in each process."""
    if hasattr(value, "get_config"):
        return [type(value).__name__, value.get_config()]
    return getattr(value, "__name__", None) or str(value)
