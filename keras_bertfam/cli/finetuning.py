"""Fine-tuning by recipe: a grid, early stopping, and the median over seeds."""

import itertools
import statistics
import sys
import time

import keras

from keras_bertfam import datasets, metrics, optimizers, tasks

_CLASSES = {
    "classification": tasks.TextClassifier,
    "regression": tasks.TextRegressor,
    "tagging": tasks.TokenClassifier,
    "multiple_choice": tasks.MultipleChoice,
    "question_answering": tasks.SpanQuestionAnswering,
}


def make_model(task, preset, load_weights=True, sequence_length=None, **kwargs):
    """A model for a task from a preset, with a new head.

    Args:
        task: `keras_bertfam.datasets.TaskData`.
        preset: str.
        load_weights: bool.
        sequence_length: int, or `None` for the preprocessor's default.
        **kwargs: arguments of the task's class besides.

    Returns:
        A task with a preprocessor.
    """
    cls = _CLASSES[task.kind]
    if task.kind in ("classification", "tagging"):
        kwargs["label_names"] = list(task.label_names)
    model = cls.from_preset(preset, load_weights=load_weights, **kwargs)
    if model.preprocessor is None:
        raise ValueError(f"`preset` must have a tokenizer. Received: {preset!r}.")
    if sequence_length is not None:
        config = model.preprocessor.get_config()
        config |= {"sequence_length": sequence_length, "buckets": None}
        config["tokenizer"] = model.preprocessor.tokenizer
        model.preprocessor = type(model.preprocessor)(**_settings(config))
    return model


def _settings(config):
    """Constructor arguments of a preprocessor from its config."""
    return {k: v for k, v in config.items() if k not in ("config_file", "dtype")}


def train(model, train_set, validation_set, settings, recipe, seed=0, jit="auto"):
    """Trains with early stopping on the first metric of the task.

    Args:
        model: a task; its weights are those of the best epoch in the end.
        train_set: `Examples`.
        validation_set: `Examples`.
        settings: tuple of learning rate, batch size and epochs.
        recipe: `FineTuningRecipe`.
        seed: int, of the order of examples.
        jit: `jit_compile` of `keras.Model.compile`.

    Returns:
        Dict of the best epoch's metrics.
    """
    learning_rate, batch_size, epochs = settings
    model.preprocessor.seed = seed
    optimizer = optimizers.fine_tuning_optimizer(
        model,
        learning_rate,
        layer_decay=recipe.layer_decay,
        offset=recipe.layer_offset,
        scale_embeddings=recipe.scale_embeddings,
        warmup_steps=recipe.warmup_steps,
        weight_decay=recipe.weight_decay,
    )
    model.compile(optimizer, jit_compile=jit)
    names = train_set.task.metrics
    watched = f"val_{names[0]}"
    scores = metrics.TaskMetrics(validation_set, batch_size=batch_size)
    stop = keras.callbacks.EarlyStopping(
        watched, mode="max", patience=2, restore_best_weights=True
    )
    history = model.fit(
        train_set.x,
        train_set.y,
        batch_size=batch_size,
        epochs=epochs,
        callbacks=[scores, stop],
        verbose=1 if sys.stdout.isatty() else 2,
    ).history
    best = max(range(len(history[watched])), key=history[watched].__getitem__)
    if "val_null_threshold" in history:
        model.null_threshold = history["val_null_threshold"][best]
    return {name: history[f"val_{name}"][best] for name in names}


def finetune(
    task,
    preset,
    data=None,
    output=None,
    learning_rates=None,
    batch_sizes=None,
    epochs=None,
    seeds=(0,),
    sequence_length=None,
    limit=None,
    load_weights=True,
    report=print,
    jit="auto",
):
    """Fine-tunes by the recipe of a preset's family.

    Every point of the grid is trained with every seed. The point with the best
    median of the first metric counts; the model of the best single run is saved.

    Args:
        task: name of a task, see `keras_bertfam.datasets.get_task`.
        preset: str.
        data: see `keras_bertfam.datasets.load_examples`.
        output: directory for the best model, or `None`.
        learning_rates: sequence of floats, or `None` for the recipe's.
        batch_sizes: sequence of ints, or `None`.
        epochs: sequence of ints, or `None`.
        seeds: sequence of ints.
        sequence_length: int or `None`.
        limit: int or `None`. Only so many examples of each split.
        load_weights: bool.
        report: function that takes a line of text.
        jit: `jit_compile` of `keras.Model.compile`.

    Returns:
        A dict of the medians of the metrics and the `settings` that reached them.
    """
    train_set, validation_set = (
        datasets.load_examples(task, split, data, limit)
        for split in ("train", "validation")
    )
    _check_labelled(train=train_set, validation=validation_set)
    facts = train_set.task
    others = _other_validation_parts(facts, data, limit, report)
    recipe, longest = _recipe_of(preset, facts)
    if sequence_length is None and recipe.sequence_length is not None:
        sequence_length = min(recipe.sequence_length, longest)
    arguments = {}
    if facts.kind == "question_answering":
        arguments["end_head"] = recipe.end_head
    first = facts.metrics[0]
    best, best_run = None, float("-inf")
    for settings in itertools.product(
        learning_rates or recipe.learning_rates,
        batch_sizes or recipe.batch_sizes,
        epochs or recipe.epochs[-1:],  # it stops early
    ):
        runs = []
        for seed in seeds:
            keras.utils.set_random_seed(seed)
            model = make_model(
                facts, preset, load_weights, sequence_length, **arguments
            )
            start = time.perf_counter()
            run = train(model, train_set, validation_set, settings, recipe, seed, jit)
            for part, examples in others.items():
                scores = metrics.TaskMetrics(examples, batch_size=settings[1])
                found = scores.compute(model).items()
                run |= {f"{name}_{part}": value for name, value in found}
            seconds = time.perf_counter() - start
            name = f"{_described(settings)}, seed {seed}"
            report(f"{name}: {formatted(run)}, {seconds:.0f} s")
            runs.append(run)
            if run[first] > best_run:
                best_run = run[first]
                if output is not None:
                    model.save_to_preset(output)
        median = {k: statistics.median(run[k] for run in runs) for k in runs[0]}
        if best is None or median[first] > best[0][first]:
            best = (median, settings)
    median, settings = best
    name = f"best, median of {len(seeds)}: {_described(settings)}"
    report(f"{name}: {formatted(median)}")
    return {**median, "settings": settings}


def _check_labelled(**examples):
    for split, part in examples.items():
        if part.y is None:
            raise ValueError(
                f"{part.task.name!r}, split {split!r}, must have labels in "
                f"{part.task.label!r}. Received: none."
            )


def _other_validation_parts(task, data, limit, report):
    """Further parts to report scores of, such as MNLI's mismatched one."""
    parts = {}
    for split in task.splits:
        _, _, part = split.partition("validation_")
        if not part:
            continue
        try:
            parts[part] = datasets.load_examples(task, split, data, limit)
        except FileNotFoundError as error:
            report(f"No scores of {split!r}: {error}")
    return parts


def _recipe_of(preset, task):
    """The recipe, and the longest row that the preset's backbone takes."""
    backbone_cls = _CLASSES[task.kind].backbone_cls
    backbone = backbone_cls.from_preset(preset, load_weights=False)
    family, width = type(backbone).__name__, backbone.hidden_dim
    if family == "ElectraBackbone" and width >= 1024:
        family = "electra_large"
    elif family == "BertBackbone" and width in (128, 256, 512):
        family = "bert_miniature"
    longest = getattr(backbone, "max_sequence_length", None) or sys.maxsize
    return tasks.fine_tuning_recipe(family, task.name), longest


def formatted(scores):
    """Metrics in a line."""
    return ", ".join(f"{name} {value:.4f}" for name, value in scores.items())


def _described(settings):
    return "learning rate {:g}, batch size {}, {} epochs".format(*settings)
