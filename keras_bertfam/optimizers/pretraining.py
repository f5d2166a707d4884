"""Make the published pre-training optimizer, and tell its schedule of `fit()`."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.optimizers.adafactor import Adafactor
from keras_bertfam.optimizers.base import AdamW, exclude_norms_and_biases, inner
from keras_bertfam.optimizers.lamb import BertAdamW, Lamb
from keras_bertfam.optimizers.muon import Muon
from keras_bertfam.optimizers.schedules import (
    COUNTING,
    FORMS,
    InverseSquareRootDecay,
    WarmupPolynomialDecay,
    check_rate,
    warn_of_batches,
)
from keras_bertfam.optimizers.stable_adamw import StableAdamW

# The optimizers by their names in recipes.
OPTIMIZERS: dict[str, Callable[..., keras.optimizers.Optimizer]] = {
    "adamw": AdamW,
    "lamb": Lamb,
    "stable_adamw": StableAdamW,
    "muon": Muon,
    "adafactor": Adafactor,
    "adagrad": functools.partial(
        keras.optimizers.Adagrad, initial_accumulator_value=1.0
    ),
}
# Forms of schedules without a last rate.
ENDLESS = ("constant", "rsqrt", "inverse_sqrt")
# Those that take `bias_correction`, and those that take `beta_2` and `epsilon`.
BIASED = ("adamw", "lamb")
WITH_MOMENTS = (*BIASED, "stable_adamw", "muon")


@checked
def pretraining_optimizer(
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-4,
    total_steps: int | None = None,
    warmup_steps: float | None = None,
    schedule_form: str = "join",
    weight_decay: float = 0.01,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    global_clipnorm: float | None = 1.0,
    optimizer: str = "adamw",
    bias_correction: bool | None = None,
    power: float = 1.0,
    decay_steps: float = 0.1,
    end_share: float = 0.0,
    warmup_bounds: Sequence[int] | None = None,
    **kwargs: Any,
) -> keras.optimizers.Optimizer:
    """Make BERT's pre-training optimizer, or another family's.

    The defaults are BERT's: peak rate 1e-4, 1 % warm-up (10k of 1M steps),
    linear decay to 0, decoupled weight decay .01 except on biases and on the
    weights of normalisation layers, gradients clipped to global norm 1.

    Keras's Adam corrects the bias of its moments; BERT's released code doesn't, which
    is `bias_correction=False`. At the same rate, the first updates of BERT's code are
    therefore up to 3.2 times as large. Warm-up hides the difference, and it is gone
    after some 1,000 steps.

    The config of Keras's `AdamW` doesn't hold the exclusions from weight decay. A task
    that is saved and loaded has them again. If you deserialise an `AdamW` yourself,
    call `exclude_norms_and_biases` before it is built. `BertAdamW` and `Lamb` don't
    need that.

    Args:
        learning_rate: The peak rate as a float; or a
            `keras.optimizers.schedules.LearningRateSchedule`, which is used unchanged.
        total_steps: Int or `None`, see `WarmupPolynomialDecay`.
        warmup_steps: Int (steps) or float in `[0, 1)` (part of `total_steps`). Defaults
            to .01, and for `"constant"` to 0.
        schedule_form: `"join"`, `"hold"`, `"product"`, `"cosine"` or `"stable"`, see
            `WarmupPolynomialDecay`; `"rsqrt"` for `InverseSquareRootDecay`, and
            `"inverse_sqrt"` for the same with its `ramp`; or `"constant"` for a rate
            that is constant after the warm-up.
        weight_decay: Float, decoupled weight decay.
        beta_2: Float, decay of the second moment. RoBERTa's is .98.
        epsilon: Float.
        global_clipnorm: Float, or `None` for no clipping (as RoBERTa).
        optimizer: `"adamw"`, `"lamb"` as for ALBERT, whose peak rate is .00176,
            `"stable_adamw"` as for ModernBERT, `"muon"`, see `Muon`, `"adafactor"` as
            for T5, or `"adagrad"` as for ELMo, which begins with 1. The last two take
            no `beta_2` and `epsilon`.
        bias_correction: Bool, whether the moments are corrected for their bias, of
            `"adamw"` and `"lamb"` only. `None` corrects them for `"adamw"`, as Keras
            does, and not for `"lamb"`, as in its released code.
        power: Float, see `WarmupPolynomialDecay`, also for `decay_steps` and
            `warmup_bounds`.
        decay_steps: Int or float.
        end_share: Float, the final rate as a share of the peak, for schedules with an
            end.
        warmup_bounds: Pair of ints or `None`.
        **kwargs: Other arguments of the optimizer, such as
            `gradient_accumulation_steps`.

    Returns:
        An `AdamW`, `BertAdamW`, `Lamb`, `StableAdamW`, `Muon`, `Adafactor` or
            `Adagrad`, not yet built.

    Raises:
        ValueError: for an unknown `optimizer`, or a rate that isn't a positive number.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    model.compile(optimizer=keras_bertfam.optimizers.pretraining_optimizer(
        learning_rate=6e-4, total_steps=500_000, warmup_steps=24_000,
        beta_2=0.98, global_clipnorm=None))
    ```

    Reference: Devlin et al. 2019, appendix A.2; Lan et al. 2019, section 4.1; Raffel
    et al. 2019, section 3.1.2.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(
            f"`optimizer` must be one of {[*OPTIMIZERS]}. "
            f"Received: optimizer={optimizer!r}."
        )
    if schedule_form not in (*FORMS, *ENDLESS):
        raise ValueError(
            f"`schedule_form` must be one of {(*FORMS, *ENDLESS)}. "
            f"Received: schedule_form={schedule_form!r}."
        )
    is_schedule = isinstance(
        learning_rate, keras.optimizers.schedules.LearningRateSchedule
    )
    if end_share and (is_schedule or schedule_form in ENDLESS):
        raise ValueError(
            "`end_share` must be 0 for your own schedule, and for the forms "
            f"{ENDLESS}. Received: {end_share}."
        )
    if warmup_steps is None:
        warmup_steps = 0 if schedule_form == "constant" else 0.01
    if not is_schedule:
        check_rate("learning_rate", learning_rate)
        if schedule_form == "constant" and not warmup_steps:
            learning_rate = float(learning_rate)
        elif schedule_form in ("rsqrt", "inverse_sqrt"):
            learning_rate = InverseSquareRootDecay(
                learning_rate, warmup_steps, ramp=schedule_form == "inverse_sqrt"
            )
            if total_steps is not None:
                learning_rate.resolve(total_steps)
        else:
            if schedule_form == "constant":
                schedule_form, decay_steps = "stable", 0
            learning_rate = WarmupPolynomialDecay(
                learning_rate,
                warmup_steps,
                total_steps,
                power,
                end_share * learning_rate,
                form=schedule_form,
                decay_steps=decay_steps,
                warmup_bounds=warmup_bounds,
            )
    else:
        warn_of_batches(learning_rate, kwargs.get("gradient_accumulation_steps"))
    make = OPTIMIZERS[optimizer]
    if optimizer in WITH_MOMENTS:
        kwargs |= {"beta_2": beta_2, "epsilon": epsilon}
    if optimizer == "adamw" and bias_correction is False:
        make = BertAdamW
    if optimizer in BIASED and make is not AdamW:
        kwargs["bias_correction"] = bool(bias_correction)
    made = make(
        learning_rate,
        weight_decay=weight_decay,
        global_clipnorm=global_clipnorm,
        **kwargs,
    )
    exclude_norms_and_biases(made)
    count_updates(made)
    return made


def needs_total_steps(optimizer: keras.optimizers.Optimizer | None) -> bool:
    """Tell whether the optimizer's schedule needs `resolve_schedule`.

    Args:
        optimizer: A `keras.optimizers.Optimizer`, or `None`.
    """
    schedule = _schedule(optimizer)
    return schedule is not None and schedule.total_steps is None


@checked
def resolve_schedule(
    optimizer: keras.optimizers.Optimizer | None, steps: int | None
) -> None:
    """Give the optimizer's schedule the number of batches that `fit()` will run.

    A schedule without `total_steps` gets the number of updates that all batches, those
    so far and those to come, make. With gradient accumulation that is one update for
    each `gradient_accumulation_steps` batches; batches that are left over make none. A
    warning says if there is no update at all, or if a schedule with `total_steps` ends
    before the run.

    Args:
        optimizer: A `keras.optimizers.Optimizer`, or `None`.
        steps: Int, the number of batches to come, or `None` if it is unknown (an
            endless stream).

    Raises:
        ValueError: if the schedule needs the number of steps and `steps` is `None`, or
            if it counts updates with another number of batches, see `count_updates`.
    """
    count_updates(optimizer)
    schedule = _schedule(optimizer)
    if schedule is None or (steps is None and schedule.total_steps is not None):
        return
    if steps is None:
        raise ValueError(
            "The learning-rate schedule needs the number of training steps, and "
            "the data has no known length. Pass `total_steps` to `compile()`, or "
            "`steps_per_epoch` to `fit()`."
        )
    # Keras has no public access to the number of batches: `iterations` counts updates,
    # without the batches of an unfinished one.
    batches = steps + int(ops.convert_to_numpy(inner(optimizer)._iterations))
    each = schedule.gradient_accumulation_steps or 1
    if batches < each:
        warnings.warn(
            f"Nothing will be trained: the run has {batches} batches, and an update "
            f"takes {each} by `gradient_accumulation_steps`.",
            stacklevel=4,
        )
    total = max(batches // each, 1)
    schedule.resolve(total)
    stays = schedule.form == "stable" and not schedule.decay_steps
    if total > schedule.total_steps and not stays:
        warnings.warn(
            f"The learning-rate schedule ends at step {schedule.total_steps}, and "
            f"this run goes to step {total}: the steps beyond the end train at the "
            f"rate {schedule.end_learning_rate}. Compile again with a larger "
            "`total_steps` to continue at a higher rate.",
            stacklevel=4,
        )


def count_updates(optimizer: keras.optimizers.Optimizer | None) -> None:
    """Give the optimizer's schedule the number of batches in an update.

    Keras asks schedules for the rate of a batch. This library's schedules count
    updates, so they need that number. Tasks call this in `compile()` and `fit()`.

    Args:
        optimizer: A `keras.optimizers.Optimizer`, or `None`.

    Raises:
        ValueError: if the schedule has another number already.
    """
    schedule = _schedule(optimizer)
    if schedule is None:
        return
    steps = inner(optimizer).gradient_accumulation_steps
    known = schedule.gradient_accumulation_steps
    if known is not None and known != (steps or 1):
        raise ValueError(
            "The learning-rate schedule and its optimizer must have the same "
            f"`gradient_accumulation_steps`. Received: {known} and {steps}. Make a "
            "separate schedule for each optimizer."
        )
    schedule.gradient_accumulation_steps = steps or known


def _schedule(optimizer):
    # Only an optimizer's config gives public access to its schedule.
    schedule = getattr(inner(optimizer), "_learning_rate", None)
    return schedule if isinstance(schedule, COUNTING) else None
