"""Build what a pre-training run trains: a task, its tokenizer and its encoder."""

from typing import Any

from keras_bertfam import models, optimizers, tasks, tokenizers
from keras_bertfam.cli.inputs import kept_tokenizer
from keras_bertfam.cli.runs import TOKENIZERS, PretrainingRun, check_languages
from keras_bertfam.layers.data.prepared.token_corpus import TokenCorpus
from keras_bertfam.presets import names
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.families.parts.objectives import OBJECTIVES
from keras_bertfam.presets.tokenizer_presets import load_given_tokenizer, load_tokenizer
from keras_bertfam.tokenizers.sentence_piece import PlainSentencePiece
from keras_bertfam.tokenizers.training import BYTE_PAIR, SENTENCE_PIECE, WORD_PIECE
from keras_bertfam.types import Config, Model, TFDataset, Tokenizer


def build(run: PretrainingRun, documents: TFDataset) -> Model:
    """Make the compiled task of a run, and learn its tokenizer from the text.

    Args:
        run: `PretrainingRun`.
        documents: `tf.data.Dataset` of strings, to learn a vocabulary from.

    Returns:
        A pre-training task.

    Raises:
        ValueError: for settings that don't go together, and for text without a language
            if rows have `languages`.
    """
    if run.objective_name == "distillation":
        return _checked(run, make_distiller(run))
    name = OBJECTIVES[run.objective_name].task
    cls = getattr(tasks, name)
    settings = preprocessor_settings(run)
    if (run.size or "").startswith("macbert") and not settings.get("similar_words"):
        raise ValueError(
            "`preprocessor_arguments` must have `similar_words` with MacBERT's sizes, "
            f"which have no mask tokens. Received: {run.preprocessor_arguments!r}."
        )
    if name == "CausalLM":
        run = run.changed(backbone_arguments={"causal": True, **run.backbone_arguments})
    arguments = task_arguments(run)
    if run.preset is not None:
        model = load(run, cls, settings, documents, **arguments)
    else:
        tokenizer = make_tokenizer(run, documents)
        preprocessor = pretraining_preprocessor(cls)(
            tokenizer, run.sequence_length, **settings
        )
        model = cls(make_backbone(run, tokenizer), preprocessor, **arguments)
    return _checked(run, model)


def preprocessor_settings(run: PretrainingRun) -> Config:
    """Give the arguments of a run's preprocessor beside tokenizer and length.

    They are those of the objective, those that the family was published with if it has
    this objective, and the run's own.
    """
    objective = OBJECTIVES[run.objective_name]
    settings: Config = {**objective.arguments}
    said = {**run.recipe.masking, **run.recipe.task_arguments}.items()
    as_published = objective.task == run.recipe.task and settings.items() <= said
    if as_published and run.preset is None:
        # The recipe's lengths are for rows of 512 tokens. The preprocessor scales them.
        masking = run.recipe.masking.items()
        settings |= {k: v for k, v in masking if not k.endswith("_length")}
    if run.strategy is not None:
        settings["strategy"] = run.strategy
    if run.languages():
        settings["languages"] = run.languages()
    return settings | {"seed": run.seed, **run.preprocessor_arguments}


def task_arguments(run: PretrainingRun) -> Config:
    """Give the arguments of a run's task beside its encoder and preprocessor.

    They are those that a masked language model of the family was published with, such
    as DeBERTa's decoder, or XLNet's memory, and the run's own.
    """
    name = OBJECTIVES[run.objective_name].task
    arguments: Config = {}
    if name == "MaskedLM" == run.recipe.task and run.preset is None:
        arguments = {**run.recipe.task_arguments}
    if name == "PermutationLM":
        recipe = tasks.pretraining_recipe("xlnet")
        memory = recipe.task_arguments["memory_length"]
        memory = memory * run.sequence_length // recipe.sequence_length
        arguments = {"memory_length": memory, "batch_size": run.batch_size}
    return arguments | run.task_arguments


def _checked(run, model):
    """Compile a task, unless its rows have languages and the run's text has none."""
    check_languages(run, getattr(model.preprocessor, "languages", None))
    return compiled(run, model)


def load(
    run: PretrainingRun,
    cls: Any,
    settings: Config,
    documents: TFDataset,
    **arguments: Any,
) -> Model:
    """Load the weights of the run's preset into a task, and add new words if wanted.

    Args:
        run: `PretrainingRun`.
        cls: class of the task.
        settings: arguments of its preprocessor.
        documents: `tf.data.Dataset` of strings, to look for words in.
        **arguments: arguments of the task.

    Returns:
        A task that isn't compiled.
    """
    model = cls.from_preset(
        run.preset, backbone_arguments=run.backbone_arguments, **arguments
    )
    if model.preprocessor is None:
        raise ValueError(f"`preset` must have a tokenizer. Received: {run.preset!r}.")
    _check_rows(run, model.backbone, run.preset)
    tokenizer = model.preprocessor.tokenizer
    preprocessor = pretraining_preprocessor(cls)(
        tokenizer, run.sequence_length, **{**_kept(model.preprocessor), **settings}
    )
    asked = settings.get("sentence_objective")
    if asked not in (None, getattr(model, "sentence_objective", None)):
        new = cls(model.backbone, preprocessor, **arguments)
        new.masked_lm_head.set_weights(model.masked_lm_head.get_weights())
        model = new  # its head for sentence pairs learns another objective
    model.preprocessor = preprocessor
    if not run.new_words:
        return model
    tokenizer = tokenizers.extend_vocabulary(tokenizer, documents, run.new_words)
    return tasks.resize_vocabulary(model, tokenizer)


def _kept(preprocessor):
    """Give the settings of a preset's rows that its encoder has learned with."""
    names = ("languages", "separators")
    return {n: getattr(preprocessor, n) for n in names if hasattr(preprocessor, n)}


def _check_rows(run, backbone, preset):
    longest = getattr(backbone, "max_sequence_length", None)
    if longest is not None and run.sequence_length > longest:
        raise ValueError(
            f"`sequence_length` must be at most {longest}, the positions of "
            f"{preset!r}. Received: {run.sequence_length}."
        )


def make_tokenizer(run: PretrainingRun, documents: TFDataset) -> Tokenizer:
    """Learn a tokenizer of the family's kind from documents, or load one that is there.

    A run that goes on after a kill has the tokenizer that it had. A prepared corpus has
    a tokenizer. If `tokenizer` names a preset or the files of a tokenizer, that one is
    loaded. Otherwise a vocabulary is learned.
    """
    if (kept := kept_tokenizer(run)) is not None:
        return load_tokenizer(kept)
    if run.tokenizer is None and isinstance(documents, TokenCorpus):
        return load_tokenizer(documents.tokenizer_folder)
    family = FAMILIES[run.family]
    kind = run.tokenizer or family.tokenizer
    if kind not in TOKENIZERS:
        return _loaded(run, kind)
    size = run.vocabulary_size
    if kind == "byte_pair":
        form = _form(family.tokenizer_class, BYTE_PAIR, "roberta")
        return tokenizers.train_byte_pair(documents, size, family=form)
    to_text = OBJECTIVES[run.objective_name].task == "TextToText"
    if kind == "sentence_piece" and to_text:  # with sentinels, for any family
        return tokenizers.train_sentence_piece(documents, size, family="t5")
    published = names.published(getattr(models, family.backbone))
    cased = run.cased
    if cased is None:
        cased = not next(published[name].lowercase for name in family.sizes)
    if kind == "word_piece":
        form = _form(family.tokenizer_class, WORD_PIECE, "bert")
        return tokenizers.train_word_piece(
            documents, size, lowercase=not cased, family=form
        )
    # Vocabularies of text-to-text models have no mask token.
    masked = {
        name: form
        for name, form in SENTENCE_PIECE.items()
        if "mask" in getattr(form[0], "special_token_names", ())
    }
    form = _form(family.tokenizer_class, masked, "albert")
    clean_up: Config = {"lowercase": not cased, "keep_accents": cased}
    if issubclass(SENTENCE_PIECE[form][0], PlainSentencePiece):
        clean_up = {}
    return tokenizers.train_sentence_piece(documents, size, family=form, **clean_up)


def _form(tokenizer_class, forms, usual):
    """Give the form of a class's vocabularies, or else the usual one."""
    fitting = (n for n, (cls, *_) in forms.items() if cls.__name__ == tokenizer_class)
    return next(fitting, usual)


def _loaded(run, path):
    tokenizer = load_given_tokenizer(path, run.family)
    lowercase = getattr(tokenizer, "lowercase", False)
    if run.cased is not None and run.cased == lowercase:
        raise ValueError(
            f"`cased` must be left out or {not lowercase}, as the tokenizer {path!r} "
            f"is. Received: {run.cased}."
        )
    return tokenizer


def make_backbone(run: PretrainingRun, tokenizer: Tokenizer | None = None) -> Model:
    """Make the family's encoder in the size that is asked for.

    Args:
        run: `PretrainingRun`.
        tokenizer: its vocabulary sets the size of the embeddings; `None` for the
            published size.

    Returns:
        A backbone with new weights.
    """
    name, arguments = run.published_size()
    if "num_languages" in FAMILIES[run.family].sizes[name].arguments:
        # Nothing would train the vectors of languages that the text isn't told of.
        arguments = {"num_languages": len(run.languages() or ()), **arguments}
    if tokenizer is not None:
        arguments = {"vocabulary_size": tokenizer.vocabulary_size(), **arguments}
    return getattr(models, FAMILIES[run.family].backbone).from_preset(
        name, load_weights=False, **{**arguments, **run.backbone_arguments}
    )


def make_distiller(run: PretrainingRun) -> Model:
    """Make a student with half of the teacher's layers, beside the teacher."""
    backbone = models.Backbone.from_preset(str(run.teacher), load_weights=False)
    causal = getattr(backbone, "causal", False)
    cls: Any = tasks.CausalLM if causal else tasks.MaskedLM
    teacher = cls.from_preset(str(run.teacher))
    if teacher.preprocessor is None:
        raise ValueError(f"`teacher` must have a tokenizer. Received: {run.teacher!r}.")
    _check_rows(run, backbone, run.teacher)
    settings: Config = {"seed": run.seed}
    if not causal:
        settings |= {**_kept(teacher.preprocessor), "strategy": run.strategy}
    elif run.strategy is not None:
        raise ValueError(
            "`strategy` must be left out with a teacher that isn't a masked language "
            f"model. Received: {run.strategy!r}, teacher={run.teacher!r}."
        )
    feeding = tasks.CausalLMPreprocessor if causal else tasks.DistillerPreprocessor
    preprocessor = feeding(
        teacher.preprocessor.tokenizer,
        run.sequence_length,
        **{**settings, **run.preprocessor_arguments},
    )
    student = cls.from_teacher(teacher, **run.backbone_arguments)
    return tasks.Distiller(student, teacher, preprocessor, **run.task_arguments)


def compiled(run: PretrainingRun, model: Model) -> Model:
    """Compile a task as published, with the run's own settings in place of others."""
    given = rates_of(run)
    optimizer: Any = "auto"
    if run.optimizer_arguments:
        settings = {**model.optimizer_defaults, **given, **run.optimizer_arguments}
        optimizer, given = optimizers.pretraining_optimizer(**settings), {}
    model.compile(optimizer, **given, **compilation_of(run))
    return model


def rates_of(run: PretrainingRun) -> Config:
    """Give the optimizer's arguments that a run has as settings of its own."""
    rates = {"learning_rate": run.learning_rate, "warmup_steps": run.warmup_steps}
    given: Config = {name: v for name, v in rates.items() if v is not None}
    if run.accumulate > 1:
        given["gradient_accumulation_steps"] = run.accumulate
    return given


def compilation_of(run: PretrainingRun) -> Config:
    """Give the arguments of `compile` that say how a step is computed."""
    given: Config = {}
    if run.rematerialize != "none":
        given["rematerialize"] = run.rematerialize
    if run.jit_compile is not None:
        given["jit_compile"] = run.jit_compile
    return given


def pretraining_preprocessor(cls: Any) -> Any:
    """Give the class that feeds a task in pre-training."""
    # Its own is for pairs of texts.
    return (
        tasks.DenoisingPreprocessor if cls is tasks.TextToText else cls.preprocessor_cls
    )
