"""The published learning-rate schedules."""

import math
import numbers
import warnings
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import check_number, checked
from keras_bertfam.types import Config, Tensor

FORMS = ("join", "hold", "product", "cosine", "stable")


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class WarmupPolynomialDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then polynomial or cosine decay, in the published forms.

    With peak rate `p`, end rate `e`, `w` warm-up steps out of `T` and
    `decay(s, n) = e + (p - e) * (1 - s / n) ** power`, the rate of the update after `t`
    other updates is

    - `"join"` (RoBERTa, XLNet, Hugging Face): `p * t / w` for `t < w`, then
      `decay(t - w, T - w)`: continuous, the peak is reached at `t = w`;
    - `"hold"` (BERT): `p * t / w` for `t < w`, then `decay(t, T)`: the decay
      runs over all steps, so the rate drops from about `p` at `t = w`;
    - `"product"` (ELECTRA): `min(t / w, 1) * decay(t, T)`;
    - `"cosine"` (GPT): as `"join"`, with `decay(s, n) = e + (p - e) *
      (1 + cos(pi * s / n)) / 2`;
    - `"stable"` (ModernBERT): warm-up as `"join"`, then `p` until the last `d`
      steps, which fall as `e + (p - e) * (1 - sqrt(s / d))`.

    From step `T` on the rate stays at `e`.

    Args:
        peak_learning_rate: Positive float, the rate that warm-up climbs to.
        warmup_steps: Int, the number of warm-up steps; or a float in `[0, 1)`,
            the part of `total_steps` that is warm-up.
        total_steps: Int, the number of updates until `end_learning_rate`, or `None` if
            it isn't known yet. `resolve()` sets it; `fit()` of this library's tasks
            calls it with epochs x steps.
        power: Positive float, the power of the polynomial; 1 is linear. Not read by
            `"cosine"` and `"stable"`.
        end_learning_rate: Float, the rate at `total_steps`.
        form: `"join"`, `"hold"`, `"product"`, `"cosine"` or `"stable"`.
        name: Name of the schedule.
        gradient_accumulation_steps: Int, the number of batches in an update. `None`
            means 1; an optimizer with gradient accumulation sets it when it is made by
            this library's functions or compiled into one of its tasks. Keras asks for
            the rate of a batch, which is the rate of its update.
        decay_steps: Int, or float in `[0, 1]` as a part of `total_steps`: `d` of
            `"stable"`. Other forms don't read it. With 0 the rate stays at the peak.
        warmup_bounds: Pair of ints, or `None`: the least and the most warm-up steps if
            `warmup_steps` is a part of the total. They are never more than the total.

    Raises:
        ValueError: if an argument is out of its range, or when an unresolved
            schedule is called.

    Example:

    ```python
    schedule = keras_bertfam.optimizers.WarmupPolynomialDecay(
        peak_learning_rate=1e-4, warmup_steps=10_000, total_steps=1_000_000
    )
    optimizer = keras.optimizers.AdamW(schedule)
    ```

    Reference: Warner et al. 2024, section 2.2 (`"stable"`); Devlin et al. 2019,
    appendix A.2 (`"hold"` is what its released code does); Liu et al. 2019, table 9;
    Clark et al. 2020, appendix A; Radford et al. 2018, section 4.1.
    """

    def __init__(
        self,
        peak_learning_rate: float,
        warmup_steps: float = 0,
        total_steps: int | None = None,
        power: float = 1.0,
        end_learning_rate: float = 0.0,
        form: str = "join",
        name: str = "WarmupPolynomialDecay",
        gradient_accumulation_steps: int | None = None,
        decay_steps: float = 0.1,
        warmup_bounds: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        check_rate("peak_learning_rate", peak_learning_rate)
        check_number("end_learning_rate", end_learning_rate, -math.inf)
        check_number("power", power, -math.inf)
        if end_learning_rate < 0:
            raise ValueError(
                "`end_learning_rate` must not be negative. "
                f"Received: end_learning_rate={end_learning_rate}."
            )
        if power <= 0:
            raise ValueError(f"`power` must be positive. Received: power={power}.")
        if form not in FORMS:
            raise ValueError(f"`form` must be one of {FORMS}. Received: form={form!r}.")
        _check_part("warmup_steps", warmup_steps)
        _check_part("decay_steps", decay_steps, whole=True)
        if warmup_bounds is not None and not 0 <= warmup_bounds[0] <= warmup_bounds[1]:
            raise ValueError(
                "`warmup_bounds` must be two ascending numbers of steps. "
                f"Received: warmup_bounds={warmup_bounds}."
            )
        check_accumulation(gradient_accumulation_steps)
        self.peak_learning_rate = peak_learning_rate
        self.warmup_steps = _number(warmup_steps)
        self.total_steps: int | None = None
        self.power = power
        self.end_learning_rate = end_learning_rate
        self.form = form
        self.name = name
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.decay_steps = _number(decay_steps)
        self.warmup_bounds = None if warmup_bounds is None else [*warmup_bounds]
        if total_steps is not None:
            self.resolve(total_steps)

    def resolve(self, total_steps: int) -> None:
        """Set `total_steps` unless it is set already.

        Must be called before the train step is traced: the number of steps is
        a constant of the compiled step.

        Args:
            total_steps: Positive int, the number of updates until the end.

        Raises:
            ValueError: if `total_steps` isn't a positive integer, or is
                smaller than `warmup_steps`.
        """
        if self.total_steps is not None:
            return
        if int(total_steps) != total_steps or total_steps < 1:
            raise ValueError(
                "`total_steps` must be a positive integer. "
                f"Received: total_steps={total_steps!r}."
            )
        if self.warmup_steps > total_steps:
            raise ValueError(
                "`warmup_steps` must not exceed `total_steps`. Received: "
                f"warmup_steps={self.warmup_steps}, total_steps={total_steps}."
            )
        both = [self._warmup(total_steps), self._cooldown(total_steps)]
        if self.form == "stable" and sum(both) > total_steps:
            raise ValueError(
                "`warmup_steps` and `decay_steps` must not exceed `total_steps` "
                f"together. Received: {both[0]} and {both[1]} of {total_steps} steps."
            )
        self.total_steps = int(total_steps)

    def __call__(self, step: int | Tensor) -> Tensor:
        if self.total_steps is None:
            raise ValueError(
                "The number of training steps isn't known: this schedule has "
                "total_steps=None. Pass `total_steps`, or call "
                "`resolve(total_steps)` before training."
            )
        total = self.total_steps
        warmup = self._warmup(total)
        if self.gradient_accumulation_steps:
            step = ops.floor_divide(step, self.gradient_accumulation_steps)
        step = ops.cast(step, "float32")
        if self.form == "stable":
            rate = self._fall(step, total)
        elif self.form in ("join", "cosine"):
            rate = self._decay(step - warmup, total - warmup)
        else:
            rate = self._decay(step, total)
        if not warmup:
            return rate
        ramp = step / warmup
        if self.form == "product":
            return rate * ops.minimum(ramp, 1.0)
        return ops.where(step < warmup, self.peak_learning_rate * ramp, rate)

    def _warmup(self, total):
        """Compute the number of warm-up steps."""
        steps = _steps(self.warmup_steps, total)
        if self.warmup_bounds is None or not isinstance(self.warmup_steps, float):
            return steps
        least, most = self.warmup_bounds
        return min(max(steps, least), most, total)

    def _cooldown(self, total):
        """Compute the number of steps in which `"stable"` falls.

        A share of the steps is 1 at least, if the warm-up leaves one.
        """
        steps = _steps(self.decay_steps, total)
        if steps or not self.decay_steps:
            return steps
        return min(1, total - self._warmup(total))

    def _decay(self, step, total):
        left = 1.0 - ops.clip(step / max(total, 1), 0.0, 1.0)
        span = self.peak_learning_rate - self.end_learning_rate
        if self.form == "cosine":
            return self.end_learning_rate + span * (1 - ops.cos(math.pi * left)) / 2
        return self.end_learning_rate + span * ops.power(left, self.power)

    def _fall(self, step, total):
        """Give the peak, and what is left of it in the last steps."""
        steps = self._cooldown(total)
        if not steps:
            return ops.full_like(step, self.peak_learning_rate)
        done = ops.clip((step - (total - steps)) / steps, 0.0, 1.0)
        span = self.peak_learning_rate - self.end_learning_rate
        return self.peak_learning_rate - span * ops.sqrt(done)

    def get_config(self) -> Config:
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "power": self.power,
            "end_learning_rate": self.end_learning_rate,
            "form": self.form,
            "name": self.name,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
            "decay_steps": self.decay_steps,
            "warmup_bounds": self.warmup_bounds,
        }


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class InverseSquareRootDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that falls with the root of the updates, and has no end.

    It is `p / sqrt(max(t, w))` at update `t`, so it begins with `p / sqrt(w)`. For
    `Adafactor`, whose rates are relative to the size of each variable, T5's is `p` = 1.

    With `ramp` it is `p * t / w` up to update `w`, and `p * sqrt(w / t)` from there on,
    as in XLM's released code and in fairseq: `p` is the greatest rate.

    Args:
        peak_learning_rate: Positive float, `p`.
        warmup_steps: Positive whole number, `w`, the updates before the rate falls; or
            a float between 0 and 1, `w` as a part of the updates of the run, see
            `WarmupPolynomialDecay.resolve`.
        name: Name of the schedule.
        gradient_accumulation_steps: See `WarmupPolynomialDecay`.
        ramp: Bool. Whether the rate climbs from 0 to `p` first.

    Raises:
        ValueError: if an argument is out of its range, or when a schedule is called
            whose `warmup_steps` are a part of an unknown number.

    Example:

    ```python
    schedule = keras_bertfam.optimizers.InverseSquareRootDecay()
    schedule(40_000)  # 0.005
    ```

    Reference: Raffel et al. 2019, section 3.1.2.
    """

    def __init__(
        self,
        peak_learning_rate: float = 1.0,
        warmup_steps: float = 10_000,
        name: str = "InverseSquareRootDecay",
        gradient_accumulation_steps: int | None = None,
        ramp: bool = False,
    ) -> None:
        super().__init__()
        check_rate("peak_learning_rate", peak_learning_rate)
        check_number("warmup_steps", warmup_steps, 0.0)
        is_part = 0 < warmup_steps < 1
        if not is_part and (int(warmup_steps) != warmup_steps or warmup_steps < 1):
            raise ValueError(
                "`warmup_steps` must be a positive integer, or a part of the steps. "
                f"Received: warmup_steps={warmup_steps}."
            )
        check_accumulation(gradient_accumulation_steps)
        self.peak_learning_rate = peak_learning_rate
        self.warmup_steps = warmup_steps if is_part else int(warmup_steps)
        # No step is beyond its end.
        self.total_steps = None if is_part else math.inf
        self.name = name
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.ramp = ramp

    @property
    def form(self) -> str:
        """str: its name as a `schedule_form`."""
        return "inverse_sqrt" if self.ramp else "rsqrt"

    def resolve(self, total_steps: int) -> None:
        """Set the number of warm-up steps, if they are a part of all.

        Args:
            total_steps: Positive int, the number of updates of the run.
        """
        if self.total_steps is None:
            self.warmup_steps = max(1, round(self.warmup_steps * total_steps))
            self.total_steps = math.inf

    def __call__(self, step: int | Tensor) -> Tensor:
        if self.total_steps is None:
            raise ValueError(
                "The number of training steps isn't known, of which "
                f"warmup_steps={self.warmup_steps} is a part. Pass a whole number, or "
                "call `resolve(total_steps)` before training."
            )
        if self.gradient_accumulation_steps:
            step = ops.floor_divide(step, self.gradient_accumulation_steps)
        step, warmup = ops.cast(step, "float32"), float(self.warmup_steps)
        rate = self.peak_learning_rate * ops.rsqrt(ops.maximum(step, warmup))
        if not self.ramp:
            return rate
        return rate * math.sqrt(warmup) * ops.minimum(step / warmup, 1.0)

    def get_config(self) -> Config:
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "warmup_steps": self.warmup_steps,
            "name": self.name,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
            "ramp": self.ramp,
        }


# Those that count updates, and which `fit()` tells how many there will be.
COUNTING = (WarmupPolynomialDecay, InverseSquareRootDecay)


def warn_of_batches(schedule: Any, batches: int | None) -> None:
    """Warn if a schedule counts batches though an update takes several.

    Args:
        schedule: a schedule.
        batches: int, of an update; `None` for one.
    """
    if (batches or 1) > 1 and not isinstance(schedule, COUNTING):
        warnings.warn(
            f"A {type(schedule).__name__} counts batches, not updates, of which each "
            f"takes {batches} batches by `gradient_accumulation_steps`. Give it "
            f"{batches} times as many steps, or take a schedule of "
            "`keras_bertfam.optimizers`, which counts updates.",
            stacklevel=3,
        )


def _steps(part, total):
    """Turn a number of steps, that may be a part of all, into a count."""
    return int(part * total + 1e-9) if isinstance(part, float) else part


def _number(value):
    """Make a Python number of one of NumPy, such as a float32."""
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def check_rate(name: str, value: Any) -> None:
    """Raise a `ValueError` for what is no positive number.

    Args:
        name: of the argument.
        value: what is given for it.
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (number and 0 < value < math.inf):
        kind = "a number, not text" if isinstance(value, str) else "a positive number"
        raise ValueError(f"`{name}` must be {kind}. Received: {value!r}.")


def _check_part(name, steps, whole=False):
    if isinstance(steps, numbers.Real):
        steps = _number(steps)
    too_many = isinstance(steps, float) and (steps > 1 or (steps == 1 and not whole))
    if isinstance(steps, str) or steps < 0 or too_many:
        raise ValueError(
            f"`{name}` must be an integer >= 0 (steps) or a float in "
            f"[0, 1{']' if whole else ')'} (part of all steps). "
            f"Received: {name}={steps!r}."
        )


def check_accumulation(steps: int | None) -> None:
    """Raise a `ValueError` for what can't be the number of batches of an update."""
    if steps is not None and (int(steps) != steps or steps < 1):
        raise ValueError(
            "`gradient_accumulation_steps` must be a positive integer or None. "
            f"Received: gradient_accumulation_steps={steps}."
        )
