"""Classes of the recipes of pre-training and fine-tuning that records have."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class PretrainingRecipe:
    """A recipe of pre-training: how a published model was trained.

    Attributes:
        task: name of the class in `keras_bertfam.tasks` that has the objective.
        source: paper and section, or file, that the numbers are from.
        learning_rate: the peak.
        warmup_steps: int, or float in `[0, 1)` as a share of the total.
        total_steps: updates.
        batch_size: rows of an update.
        sequence_length: tokens of a row, including special tokens.
        optimizer: see `keras_bertfam.optimizers.pretraining_optimizer`. Some take no
            `beta_2`, `epsilon` and `bias_correction`, whatever the recipe has.
        schedule_form: see `keras_bertfam.optimizers.pretraining_optimizer`. With
            `"rsqrt"` and `"inverse_sqrt"`, warm-up steps are a number and no share.
        weight_decay: float, which the rate multiplies. Biases and norms have none.
        beta_2: float.
        epsilon: float.
        global_clipnorm: float, or `None` for no clipping.
        bias_correction: whether the moments are corrected for their bias. The Adam of
            the papers does that; the code of BERT, ELECTRA and XLNet doesn't. Without
            the correction, a model may stop learning after a short warm-up at a high
            rate.
        masking: arguments of the task's preprocessor: what is masked, and how. A
            strategy that needs the data is a dict of its class and other arguments.
        rows: how documents become rows: `"segment_pairs"`, `"full_sentences"`,
            `"doc_sentences"`, `"electra_segments"` or `"parallel_streams"`.
        task_arguments: other arguments of the task.
        power: power of the decay, see
            `keras_bertfam.optimizers.WarmupPolynomialDecay`.
        decay_steps: int, for `"stable"`: the number of last steps, in which the rate
            falls.
        end_share: share of the peak that is left at the end of the schedule.
        backbone_arguments: arguments of the backbone that differ from the family's.
        lengths: pairs of a share of the steps and a length of rows, in order, for a
            training with rows of several lengths. One schedule spans them all. Empty if
            all rows have `sequence_length` tokens.
        mix_exponent: the power by which languages were sampled, see
            `keras_bertfam.layers.sample_corpora`; `None` for one language.
        phases: the recipes of the phases that followed, in order.

    Example:

    ```python
    recipe = keras_bertfam.tasks.pretraining_recipe("roberta")
    recipe.learning_rate, recipe.batch_size  # (0.0006, 8192)
    ```
    """

    task: str
    source: str
    learning_rate: float
    warmup_steps: int | float
    total_steps: int | None
    batch_size: int
    sequence_length: int = 512
    optimizer: str = "adamw"
    schedule_form: str = "join"
    weight_decay: float = 0.01
    beta_2: float = 0.999
    epsilon: float = 1e-6
    global_clipnorm: float | None = 1.0
    bias_correction: bool = True
    masking: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rows: str = "full_sentences"
    task_arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    power: float = 1.0
    decay_steps: int = 0
    end_share: float = 0.0
    backbone_arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    lengths: tuple[tuple[float, int], ...] = ()
    mix_exponent: float | None = None
    phases: tuple["PretrainingRecipe", ...] = ()

    def optimizer_arguments(self) -> dict[str, Any]:
        """Give the arguments of `optimizers.pretraining_optimizer`.

        `total_steps` isn't among them, as it belongs to a run. Warm-up is a share of
        the run.
        """
        values = {name: getattr(self, name) for name in _OPTIMIZER_ARGUMENTS}
        if self.optimizer not in ("adamw", "lamb"):
            del values["bias_correction"]
        if self.optimizer in ("adafactor", "adagrad"):
            del values["beta_2"], values["epsilon"]
        counts = self.schedule_form in ("rsqrt", "inverse_sqrt")
        if self.total_steps is not None and not counts:
            values["warmup_steps"] = self.warmup_steps / self.total_steps
        if self.power != 1:
            values["power"] = self.power
        if self.end_share:
            values["end_share"] = self.end_share
        if self.schedule_form == "stable":
            values["decay_steps"] = self.decay_steps / (self.total_steps or 1)
        return values

    def settings(self) -> dict[str, Any]:
        """Give all published settings, by the names of the arguments that take them."""
        return {
            **self.optimizer_arguments(),
            "total_steps": self.total_steps,
            "batch_size": self.batch_size,
            "sequence_length": self.sequence_length,
            **self.masking,
            **self.task_arguments,
        }


_OPTIMIZER_ARGUMENTS = (
    "optimizer learning_rate warmup_steps schedule_form weight_decay beta_2 epsilon "
    "global_clipnorm bias_correction"
).split()


@dataclasses.dataclass(frozen=True)
class FineTuningRecipe:
    """A recipe of fine-tuning: the settings of a paper's search, or of released code.

    Attributes:
        learning_rates: peak rates to try.
        batch_sizes: batch sizes to try.
        epochs: numbers of epochs to try. With early stopping only the greatest is
            taken.
        warmup_steps: share of the steps.
        weight_decay: float.
        layer_decay: see `layerwise_scales`, also for the next two.
        layer_offset: int.
        scale_embeddings: bool.
        scale_gradients: see `keras_bertfam.optimizers.LayerwiseAdamW`.
        epsilon: Adam's epsilon; `None` for `fine_tuning_epsilon`.
        sequence_length: int, or `None` for that of the task's preprocessor.
        end_head: argument of `SpanQuestionAnswering`.
        lm_weight: weight of a language model's loss beside the task's loss, for tasks
            whose head reads one state of a row.
        source: paper and section, or code, that the numbers are from.

    Example:

    ```python
    from keras_bertfam.tasks.recipes import FINE_TUNING_RECIPES
    recipe = FINE_TUNING_RECIPES["bert"]
    recipe.learning_rates  # (5e-05, 3e-05, 2e-05)
    ```
    """

    learning_rates: tuple[float, ...] = (5e-5, 3e-5, 2e-5)
    batch_sizes: tuple[int, ...] = (16, 32)
    epochs: tuple[int, ...] = (2, 3, 4)
    warmup_steps: float = 0.1
    weight_decay: float = 0.01
    layer_decay: float = 1.0
    layer_offset: int = 0
    scale_embeddings: bool = True
    scale_gradients: bool = False
    epsilon: float | None = None
    sequence_length: int | None = None
    end_head: str = "independent"
    lm_weight: float = 0.0
    source: str = "Devlin et al., 2018, appendix A.3"

    def fixed(
        self, learning_rate: float, batch_size: int, epochs: int, **changes: Any
    ) -> "FineTuningRecipe":
        """Give the recipe with one rate, one batch size and one number of epochs."""
        return self.changed(
            learning_rates=(learning_rate,),
            batch_sizes=(batch_size,),
            epochs=(epochs,),
            **changes,
        )

    def grid(self) -> list[tuple[float, int, int]]:
        """List all settings to try: tuples of learning rate, batch size and epochs.

        Only the greatest number of epochs is taken, since training stops early and
        keeps the best epoch.
        """
        return [
            *itertools.product(
                self.learning_rates, self.batch_sizes, (max(self.epochs),)
            )
        ]

    def middle(self) -> "FineTuningRecipe":
        """Give the recipe with the middle setting of the grid only.

        The learning rate and the batch size are the middle ones in sorted order. If two
        are in the middle, the greater rate and the smaller batch are taken, as they
        learn more from few examples. The epochs are those of the grid.
        """
        rates, sizes = sorted(self.learning_rates), sorted(self.batch_sizes)
        rate, size = rates[len(rates) // 2], sizes[(len(sizes) - 1) // 2]
        return self.fixed(rate, size, max(self.epochs))

    def optimizer_arguments(self) -> dict[str, Any]:
        """Give the arguments of `optimizers.fine_tuning_optimizer`, except the rate."""
        return {
            "layer_decay": self.layer_decay,
            "offset": self.layer_offset,
            "scale_embeddings": self.scale_embeddings,
            "scale_gradients": self.scale_gradients,
            "warmup_steps": self.warmup_steps,
            "weight_decay": self.weight_decay,
            "epsilon": self.epsilon,
        }

    def settings(self) -> dict[str, Any]:
        """Give the published settings; a tuple holds all values that were tried."""
        settings = {
            "learning_rate": self.learning_rates,
            "batch_size": self.batch_sizes,
            "epochs": self.epochs,
            "warmup_steps": self.warmup_steps,
            "weight_decay": self.weight_decay,
        }
        if self.layer_decay != 1:
            settings["layer_decay"] = self.layer_decay
        if self.sequence_length is not None:
            settings["sequence_length"] = self.sequence_length
        if self.lm_weight:
            settings["lm_weight"] = self.lm_weight
        return settings

    def changed(self, **changes: Any) -> "FineTuningRecipe":
        """Give the recipe with changes."""
        return dataclasses.replace(self, **changes)
