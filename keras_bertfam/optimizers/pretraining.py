"""The published pre-training optimizer, and what `fit()` settles about it."""

import re
import warnings
from typing import Any

import keras
from keras import ops

from keras_bertfam.optimizers.schedules import WarmupPolynomialDecay

# The ends of the names of biases and of the weights of normalisation layers. With
# TensorFlow, a variable's name begins with its layer's and ends with its device.
_NO_DECAY = r"(bias|gamma|beta)(/replica_\d+)?(:\d+)?$"


def pretraining_optimizer(
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-4,
    total_steps: int | None = None,
    warmup_steps: float = 0.01,
    schedule_form: str = "join",
    weight_decay: float = 0.01,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    global_clipnorm: float = 1.0,
    **kwargs: Any,
) -> keras.optimizers.AdamW:
    """Returns BERT's pre-training optimizer as Keras's `AdamW`.

    The defaults are BERT's: peak rate 1e-4, 1 % warm-up (10k of 1M steps),
    linear decay to 0, decoupled weight decay .01 except on biases and on the
    weights of normalisation layers, gradients clipped to global norm 1.

    Keras's Adam corrects the bias of its moments; BERT's released code doesn't.
    The first updates of BERT are therefore up to 3.2 times as large at the same
    rate, a difference that warm-up hides and that is gone after some 1,000
    steps.

    The exclusions are no part of an optimizer's config. Tasks that are saved have
    them again when loaded; an optimizer that you deserialise yourself needs
    `exclude_norms_and_biases` before it is built.

    Args:
        learning_rate: The peak rate as a float, or a
            `keras.optimizers.schedules.LearningRateSchedule`, which is then used
            as it is.
        total_steps: Int or `None`, see `WarmupPolynomialDecay`.
        warmup_steps: Int (steps) or float in `[0, 1)` (part of `total_steps`).
        schedule_form: `"join"`, `"hold"` or `"product"`, see
            `WarmupPolynomialDecay`.
        weight_decay: Float, decoupled weight decay.
        beta_2: Float, decay of the second moment. RoBERTa's is .98.
        epsilon: Float.
        global_clipnorm: Float, or `None` for no clipping (as RoBERTa).
        **kwargs: Other arguments of `keras.optimizers.AdamW`, such as
            `gradient_accumulation_steps`.

    Returns:
        A `keras.optimizers.AdamW`, not yet built.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    model.compile(optimizer=keras_bertfam.optimizers.pretraining_optimizer(
        learning_rate=6e-4, total_steps=500_000, warmup_steps=24_000,
        beta_2=0.98, global_clipnorm=None))
    ```

    Reference: Devlin et al. 2019, appendix A.2.
    """
    if not isinstance(learning_rate, keras.optimizers.schedules.LearningRateSchedule):
        learning_rate = WarmupPolynomialDecay(
            learning_rate, warmup_steps, total_steps, form=schedule_form
        )
    optimizer = keras.optimizers.AdamW(
        learning_rate,
        weight_decay=weight_decay,
        beta_2=beta_2,
        epsilon=epsilon,
        global_clipnorm=global_clipnorm,
        **kwargs,
    )
    exclude_norms_and_biases(optimizer)
    return optimizer


def exclude_norms_and_biases(optimizer: keras.optimizers.Optimizer) -> None:
    """Switches weight decay off for biases and normalisation weights.

    Variables are told by the ends of their own names (`bias`, `gamma`, `beta`):
    a layer's name, such as "LayerNorm", is no part of a variable's name.

    Args:
        optimizer: A `keras.optimizers.Optimizer` that isn't built yet, or a
            `LossScaleOptimizer` around one.

    Raises:
        ValueError: if the optimizer has been built (its decay is fixed then).
    """
    optimizer = _inner(optimizer)
    if optimizer.built:
        raise ValueError(
            "`optimizer` must not be built yet: weight decay is settled when its "
            f"variables are made. Received: optimizer={optimizer}."
        )
    optimizer.exclude_from_weight_decay(var_names=[_NO_DECAY])


def excludes_norms_and_biases(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether `exclude_norms_and_biases` was called on an optimizer, or `None`."""
    # Keras has no public way to what is excluded.
    pattern = getattr(_inner(optimizer), "_exclude_from_weight_decay_pattern", None)
    return pattern is not None and pattern.pattern == _NO_DECAY


def decays(variable: keras.Variable) -> bool:
    """Whether weight decay is of a variable: not of biases and norms."""
    return re.search(_NO_DECAY, variable.name) is None


def needs_total_steps(optimizer: keras.optimizers.Optimizer | None) -> bool:
    """Whether the optimizer's schedule waits for `resolve_schedule`.

    Args:
        optimizer: A `keras.optimizers.Optimizer`, or `None`.
    """
    schedule = _schedule(optimizer)
    return schedule is not None and schedule.total_steps is None


def resolve_schedule(
    optimizer: keras.optimizers.Optimizer | None, steps: int | None
) -> None:
    """Tells the optimizer's schedule how many steps `fit()` is about to run.

    A schedule without `total_steps` gets the steps done so far plus `steps`; for
    any other, a warning says when `steps` goes beyond its end.

    Args:
        optimizer: A `keras.optimizers.Optimizer`, or `None`.
        steps: Int, the number of steps to come, or `None` where it can't be
            told (a stream without end).

    Raises:
        ValueError: if the schedule needs the number of steps and `steps` is
            `None`.
    """
    schedule = _schedule(optimizer)
    if schedule is None or (steps is None and schedule.total_steps is not None):
        return
    if steps is None:
        raise ValueError(
            "The learning-rate schedule needs the number of training steps, and "
            "the data has no known length. Pass `total_steps` to `compile()`, or "
            "`steps_per_epoch` to `fit()`."
        )
    # Not `iterations`, which counts updates: schedules go by batches.
    total = steps + int(ops.convert_to_numpy(_inner(optimizer)._iterations))
    schedule.resolve(total)
    if total > schedule.total_steps:
        warnings.warn(
            f"The learning-rate schedule ends at step {schedule.total_steps}, and "
            f"this run goes to step {total}: the steps beyond the end train at the "
            f"rate {schedule.end_learning_rate}. Compile again with a larger "
            "`total_steps` to go on at a higher rate.",
            stacklevel=3,
        )


def _schedule(optimizer):
    # Optimizers have no public way to their schedule but their config.
    schedule = getattr(_inner(optimizer), "_learning_rate", None)
    return schedule if isinstance(schedule, WarmupPolynomialDecay) else None


def _inner(optimizer):
    return getattr(optimizer, "inner_optimizer", optimizer)
