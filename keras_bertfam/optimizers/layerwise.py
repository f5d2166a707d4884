"""Make smaller learning rates for lower layers, in a way that works with Adam."""

from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.optimizers.base import FusedUpdate, SettableRate, decays, has_16_bits
from keras_bertfam.optimizers.pretraining import count_updates
from keras_bertfam.optimizers.schedules import (
    WarmupPolynomialDecay,
    check_rate,
    warn_of_batches,
)
from keras_bertfam.types import Config, Model, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class LayerwiseAdamW(FusedUpdate, SettableRate, keras.optimizers.Adam):
    """Adam with a separate learning rate for each variable.

    Each variable's update and decoupled weight decay are multiplied by its scale.
    Scaling gradients instead, as XLNet's code does, changes little: Adam divides by the
    gradients' size, so it has the same effect as dividing epsilon by the scale.

    Args:
        learning_rate: float or schedule, the rate at scale 1.
        scales: dict from paths of variables to floats; other variables have 1. See
            `layerwise_scales`.
        decoupled_weight_decay: float. It doesn't apply to biases and normalisation
            weights.
        scale_gradients: bool. Whether `scales` multiply the gradients, after clipping,
            instead of the rates.
        **kwargs: arguments of `keras.optimizers.Adam`.

    Raises:
        ValueError: for a `weight_decay`, which is Keras's; if a path in `scales`
            belongs to no variable.

    Example:

    ```python
    from keras_bertfam.optimizers.layerwise import layerwise_scales
    model = keras_bertfam.tasks.TextClassifier.from_preset("my_bert", num_classes=2)
    scales = layerwise_scales(model, 0.8)
    model.compile(keras_bertfam.optimizers.LayerwiseAdamW(3e-4, scales))
    ```

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555), table 7;
    `model_utils.py` of zihangdai/xlnet.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        scales: dict[str, float] | None = None,
        decoupled_weight_decay: float = 0.0,
        scale_gradients: bool = False,
        name: str = "layerwise_adamw",
        **kwargs: Any,
    ) -> None:
        if kwargs.get("weight_decay"):
            raise ValueError(
                "`weight_decay` must be given as `decoupled_weight_decay`, which is "
                "scaled, too, and leaves out biases and normalisation weights. "
                f"Received: weight_decay={kwargs['weight_decay']}."
            )
        super().__init__(learning_rate, name=name, **kwargs)
        self.scales = dict(scales or {})
        self.decoupled_weight_decay = decoupled_weight_decay
        self.scale_gradients = scale_gradients
        self.is_adam = not scale_gradients
        self._rates: list[tuple[float, float]] = []

    def build(self, variables: Sequence[Any]) -> None:
        unknown = self.scales.keys() - {variable.path for variable in variables}
        if unknown:
            raise ValueError(
                "`scales` must have paths of variables that are trained. Received: "
                f"{sorted(unknown)[:5]}. Call `compile()` again after you have frozen "
                "layers."
            )
        super().build(variables)
        weight_decay = self.decoupled_weight_decay
        self._rates = [
            (
                self.scales.get(v.path, 1.0),
                weight_decay if decays(v) and self._use_weight_decay(v) else 0.0,
            )
            for v in variables
        ]

    def _scale_and_decay(self, variable: Any) -> tuple[float, float]:
        return self._rates[self._get_variable_index(variable)]

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        # Keras's own optimizers find their slots by this method. A subclass has no
        # public way to the number of a variable.
        scale, weight_decay = self._rates[self._get_variable_index(variable)]
        rate = ops.cast(learning_rate, "float32")
        if self.scale_gradients:
            gradient = gradient * scale
        else:
            rate = rate * scale
        if weight_decay and (self.amsgrad or not has_16_bits(variable)):
            share = ops.cast(rate * weight_decay, variable.dtype)
            self.assign_sub(variable, ops.multiply(variable, share))
        super().update_step(gradient, variable, rate)

    @classmethod
    def from_config(cls, config: Config, custom_objects: Any = None) -> Self:
        # Earlier versions took Keras's weight decay.
        config = dict(config)
        decay = config.pop("weight_decay", None)
        config["decoupled_weight_decay"] = (
            config["decoupled_weight_decay"] or decay or 0
        )
        return super().from_config(config, custom_objects)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "scales": self.scales,
            "decoupled_weight_decay": self.decoupled_weight_decay,
            "scale_gradients": self.scale_gradients,
        }


@checked
def layerwise_scales(
    model: Model, decay: float, offset: int = 0, scale_embeddings: bool = True
) -> dict[str, float]:
    """Compute factors of the rate that decrease from each layer to the one below.

    With `n` layers, layer `i` (from 1) has the scale `decay ** (n + offset - i)`,
    embeddings `decay ** (n + offset)`, and the task's head 1. With 12 layers and
    `decay=0.8`, layer 12 has 1, layer 11 has 0.8, and embeddings have `0.8 ** 12 =
    0.069`. A layer that several depths share, as in ALBERT, has the scale of the
    highest. A decoder's layers are above those of its encoder. ELECTRA has `offset=2`;
    XLNet `offset=0` and `scale_embeddings=False`.

    Args:
        model: a task with a `backbone`.
        decay: float in `(0, 1]`.
        offset: int. How far the head is above the last layer.
        scale_embeddings: bool.

    Returns:
        Dict from paths of the backbone's trained variables to floats.

    Raises:
        ValueError: for a `decay` out of its range, or a backbone without such layers.

    Example:

    ```python
    from keras_bertfam.optimizers.layerwise import layerwise_scales
    model = keras_bertfam.tasks.TextClassifier.from_preset("my_bert", num_classes=2)
    layerwise_scales(model, 0.8, offset=2)
    ```
    """
    if not 0 < decay <= 1:
        raise ValueError(f"`decay` must be in (0, 1]. Received: {decay}.")
    parts = model.backbone._parts()
    if parts is None:
        raise ValueError(
            "`model` must have a backbone whose layers have rates of their own. "
            f"Received: {type(model).__name__} with {type(model.backbone).__name__}."
        )
    embeddings, blocks = parts
    scales = {}
    if scale_embeddings:
        bottom = decay ** (len(blocks) + offset)
        scales.update(dict.fromkeys(_paths(embeddings), bottom))
    for index, block in enumerate(blocks):
        scale = decay ** (len(blocks) + offset - index - 1)
        scales.update(dict.fromkeys(_paths(block), scale))
    trained = {variable.path for variable in model.trainable_variables}
    return {path: scale for path, scale in scales.items() if path in trained}


def _paths(layers):
    return [variable.path for layer in layers for variable in layer.variables]


def fine_tuning_epsilon(model: Model) -> float:
    """Give Adam's epsilon for fine-tuning: 1e-8 unless weights are float16.

    The published 1e-6 belongs to an Adam without correction of the moments' bias. Keras
    adds epsilon to the root of the raw moment. So in the first hundreds of steps, which
    may be all steps of a fine-tuning, 1e-6 would shrink updates of small gradients. In
    float16, 1e-8 would be 0.

    Args:
        model: a task with a `backbone`.

    Returns:
        float.
    """
    return 1e-6 if model.backbone.variable_dtype == "float16" else 1e-8


@checked
def fine_tuning_optimizer(
    model: Model,
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 5e-5,
    layer_decay: float = 1.0,
    offset: int = 0,
    scale_embeddings: bool = True,
    warmup_steps: float = 0.1,
    total_steps: int | None = None,
    weight_decay: float = 0.01,
    epsilon: float | None = None,
    global_clipnorm: float = 1.0,
    scale_gradients: bool = False,
    **kwargs: Any,
) -> LayerwiseAdamW:
    """Make AdamW with warm-up, linear decay, and smaller rates for lower layers.

    Args:
        model: a task with a `backbone`.
        learning_rate: float, the peak rate of the head, or a schedule.
        layer_decay: float in `(0, 1]`, see `layerwise_scales`.
        offset: int, see `layerwise_scales`.
        scale_embeddings: bool.
        warmup_steps: int (steps), or float in `[0, 1)` (part of the total).
        total_steps: int, or `None`: those of the next `fit()`.
        weight_decay: float.
        epsilon: float, or `None` for `fine_tuning_epsilon`.
        global_clipnorm: float or `None`.
        scale_gradients: bool, see `LayerwiseAdamW`.
        **kwargs: other arguments of `keras.optimizers.Adam`.

    Returns:
        A `LayerwiseAdamW`.

    Example:

    ```python
    model = keras_bertfam.tasks.TextClassifier.from_preset("my_bert", num_classes=2)
    model.compile(keras_bertfam.optimizers.fine_tuning_optimizer(
        model, 1e-4, layer_decay=0.8, offset=2))
    ```
    """
    if not isinstance(learning_rate, keras.optimizers.schedules.LearningRateSchedule):
        check_rate("learning_rate", learning_rate)
        learning_rate = WarmupPolynomialDecay(learning_rate, warmup_steps, total_steps)
    else:
        warn_of_batches(learning_rate, kwargs.get("gradient_accumulation_steps"))
    optimizer = LayerwiseAdamW(
        learning_rate,
        layerwise_scales(model, layer_decay, offset, scale_embeddings),
        decoupled_weight_decay=weight_decay,
        epsilon=fine_tuning_epsilon(model) if epsilon is None else epsilon,
        global_clipnorm=global_clipnorm,
        scale_gradients=scale_gradients,
        **kwargs,
    )
    count_updates(optimizer)
    return optimizer
