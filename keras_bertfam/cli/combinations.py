"""Check which settings of a pre-training run go together."""

from collections.abc import Iterable, Mapping
from typing import Any

from keras_bertfam.number_ranges import check_number
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.families.parts.objectives import OBJECTIVES
from keras_bertfam.presets.families.parts.phases import Phase

# For a command and an option: the option it needs, or the options it excludes.
_NEEDS = {
    ("analyse", "text"): "labelled",
    ("analyse", "label"): "labelled",
    ("convert", "attention_window"): "longformer",
    ("prepare", "test_ngram"): "test_set",
    ("score", "split"): "task",
}
_EXCLUDES = {
    ("finetune", "validation_split"): ("validation", "task"),
}
# SentencePiece tokenizers that leave all clean-up to their model.
_KEEPING_CASE = ("CamembertTokenizer", "XLMRobertaTokenizer")
# Tasks whose model has an attention, or a number of stacks, like no other task's.
_OWN_TRUNKS = ("TextToText", "PermutationLM")
# Tasks that mask nothing, or that mask single tokens at a rate of their own.
_WITHOUT_STRATEGIES = (
    "CausalLM",
    "TextToText",
    "PermutationLM",
    "DenoisingAutoencoder",
    "MaskedDiffusionLM",
)


# Settings of a run that are arguments of classes as well.
_COUNTERPARTS = {
    "accumulate": ("optimizer", "gradient_accumulation_steps"),
    "learning_rate": ("optimizer", "learning_rate"),
    "packing": ("dataset", "packing"),
    "strategy": ("preprocessor", "strategy"),
    "warmup_steps": ("optimizer", "warmup_steps"),
}


def check_options(command: str, given: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for options that a command wouldn't read.

    Args:
        command: its name.
        given: the options that were given, and their values.
    """
    for name, value in given.items():
        needed = _NEEDS.get((command, name))
        if needed is not None and needed not in given:
            raise ValueError(
                f"`{name}` must be left out without `{needed}`. Received: {value!r}."
            )
        others = _EXCLUDES.get((command, name), ())
        if found := [other for other in others if other in given]:
            raise ValueError(
                f"`{name}` must be left out with `{found[0]}`. Received: {value!r}."
            )


def trunk_of(task: str) -> str:
    """Name the kind of encoder that a task of pre-training takes."""
    return task if task in _OWN_TRUNKS else "encoder"


def check_together(run: Any) -> None:
    """Raise a `ValueError` for settings of a run that don't go together."""
    name = run.objective_name
    task = OBJECTIVES[name].task
    given = run.teacher or run.preset
    if run.strategy is not None and task in _WITHOUT_STRATEGIES:
        raise ValueError(
            "`strategy` must be left out with an objective that isn't masked "
            f"language modelling. Received: {run.strategy!r}, objective={name!r}."
        )
    if run.model_parallel > 1 and run.distribution != "jax":
        raise ValueError(
            "`model_parallel` must be 1 unless `distribution` is 'jax'. "
            f"Received: {run.model_parallel}, distribution={run.distribution!r}."
        )
    by_tokens = run.dataset_arguments.get("tokens_per_batch")
    if by_tokens is not None and run.distribution and run.validation:
        # Held-out batches are filled up to `batch_size` rows.
        raise ValueError(
            "`tokens_per_batch` must be left out with `distribution` and `validation`. "
            f"Received: {by_tokens}."
        )
    if run.teacher is not None and name != "distillation":
        raise ValueError(
            "`teacher` must be left out unless `objective` is 'distillation'. "
            f"Received: {run.teacher!r}, objective={name!r}."
        )
    if run.preset is not None and run.teacher is not None:
        raise ValueError(
            "`preset` must be left out with a `teacher`. "
            f"Received: {run.preset!r}, {run.teacher!r}."
        )
    if given is None:
        _check_new(run, task)
    elif run.size or run.tokenizer:
        raise ValueError(
            f"`size` and `tokenizer` must be left out: they come from {given!r}. "
            f"Received: size={run.size!r}, tokenizer={run.tokenizer!r}."
        )
    if run.phases:
        _check_phases(run, name)
    if run.text_share < 1 and (run.mix_exponent is not None or run.prepared):
        other = "prepared corpora" if run.prepared else "`mix_exponent`"
        raise ValueError(
            f"`text_share` must be left out with {other}. Received: {run.text_share}."
        )
    if run.preset is None and run.new_words:
        raise ValueError(
            "`new_words` must be left out without a `preset`, to whose vocabulary "
            f"words are added. Received: {run.new_words}."
        )


# Objectives with preprocessors, or with a second model, that phases can't change.
_WITHOUT_PHASES = ("distillation", "plm")


def _check_phases(run, name):
    """Raise a `ValueError` for phases that a run can't have."""
    phases = [Phase.of(each) for each in run.phases]
    if name in _WITHOUT_PHASES:
        raise ValueError(
            f"`phases` must be left out with the objective {name!r}. Received: "
            f"{run.phases!r}."
        )
    for setting in ("steps_per_epoch", "distribution"):
        if getattr(run, setting) is not None:
            raise ValueError(
                f"`{setting}` must be left out with `phases`, which count steps and "
                f"run in one process. Received: {getattr(run, setting)!r}."
            )
    for setting in ("checkpoints", "tensorboard"):
        if getattr(run, setting):
            raise ValueError(
                f"`{setting}` must be left out with `phases`, whose steps and losses "
                f"begin anew. Received: {getattr(run, setting)!r}."
            )
    longest = run.longest_row() if run.preset is None else None
    length = run.sequence_length
    for phase in phases:
        length = phase.sequence_length or length
        longest = phase.backbone_arguments.get("max_sequence_length", longest)
        if longest is not None:
            check_number("max_sequence_length", longest, 1)
        if longest is not None and length > longest:
            raise ValueError(
                f"`sequence_length` of `phases` must be at most {longest}, the "
                f"positions of {run.family!r}. Received: {length}."
            )
        other = phase.objective and OBJECTIVES[phase.objective].task
        if other not in (None, OBJECTIVES[name].task) and (
            phase.objective in _WITHOUT_PHASES
            or {trunk_of(other), trunk_of(OBJECTIVES[name].task)} != {"encoder"}
        ):
            raise ValueError(
                "`objective` of `phases` must be one that trains an encoder. "
                f"Received: {phase.objective!r} after {name!r}."
            )
        of_languages = phase.mix_exponent is not None or phase.languages
        if of_languages and run.mix_exponent is None:
            raise ValueError(
                "`phases` must not mix languages unless the run has a `mix_exponent`. "
                f"Received: {phase}."
            )


def _check_new(run, task):
    """Raise a `ValueError` for settings that don't fit a new encoder."""
    fitting = [
        name
        for name, record in FAMILIES.items()
        if record.pretraining
        and trunk_of(record.pretraining[""].task) == trunk_of(task)
    ]
    if run.family not in fitting:
        raise ValueError(
            f"`family` must be one of {sorted(fitting)} for the objective "
            f"{run.objective_name!r}. Received: {run.family!r}."
        )
    longest = run.longest_row()
    if longest is not None and run.sequence_length > longest:
        raise ValueError(
            f"`sequence_length` must be at most {longest}, the positions of "
            f"{run.family!r}. Received: {run.sequence_length}."
        )
    kind = run.tokenizer or FAMILIES[run.family].tokenizer
    own = FAMILIES[run.family].tokenizer_class in _KEEPING_CASE
    keeps_case = kind == "sentence_piece" and (own or task == "TextToText")
    if run.cased is False and (keeps_case or kind == "byte_pair"):
        raise ValueError(
            f"`cased` must be left out or true for a {kind} vocabulary of "
            f"{run.family!r} and the objective {run.objective_name!r}, which keeps "
            "case. Received: False."
        )


def check_mask_rate(run: Any, rate: float | None) -> None:
    """Raise a `ValueError` for a rate of masks if a run has no such rate."""
    task = OBJECTIVES[run.objective_name].task
    if rate is not None and task in _WITHOUT_STRATEGIES:
        raise ValueError(
            "`mask_rate` must be left out with an objective that isn't masked language "
            f"modelling. Received: {rate}, objective={run.objective_name!r}."
        )


def check_effects(run: Any, given: Iterable[str]) -> None:
    """Raise a `ValueError` for options that a `PretrainingRun` wouldn't read.

    Args:
        run: `PretrainingRun`.
        given: names of the settings that were given as options.
    """
    unread: dict[str, str] = {}
    if run.prepared:
        why = f"the prepared corpus {run.prepared[0]!r}, whose text is tokens already"
        names = "feature one_per_file encoding max_line_length vocabulary_size cased"
        unread |= dict.fromkeys(names.split(), why)
    if run.tokenizer is not None and not run.learns_vocabulary():
        unread["vocabulary_size"] = f"the tokenizer {run.tokenizer!r}, which has one"
    if run.teacher or run.preset:
        why = f"{run.teacher or run.preset!r}, which has its own"
        unread |= dict.fromkeys(("vocabulary_size", "cased"), why)
    if run.preset or (run.teacher and run.family != "distilbert"):
        unread["family"] = unread["cased"]
    if run.dataset_arguments.get("tokens_per_batch") is not None:
        unread["batch_size"] = "`tokens_per_batch`, which counts tokens"
    for name, (group, argument) in _COUNTERPARTS.items():
        if argument in getattr(run, f"{group}_arguments"):
            unread[name] = f"`{group}_arguments`, which have {argument!r}"
    if run.phases:
        unread["epochs"] = "`phases`, which count steps"
    for name in given:
        if name in unread:
            value = getattr(run, name)
            raise ValueError(
                f"`{name}` must be left out with {unread[name]}. Received: {value!r}."
            )
