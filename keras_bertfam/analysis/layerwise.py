"""Measure how much each layer changes its input."""

from collections.abc import Mapping, Sequence
from typing import Any

from keras import ops

from keras_bertfam.analysis import plots
from keras_bertfam.arguments import checked
from keras_bertfam.types import Path, Tensor

_PANELS = {"l2_distance": "L2 distance", "angle": "angle in degrees"}


def layer_transitions(
    hidden_states: Sequence[Tensor], padding_mask: Tensor | None = None
) -> dict[str, Tensor]:
    """Measure distance and angle between the input and the output of each layer.

    They are averaged over tokens that aren't padding, in float32, as in the two panels
    of ALBERT's figure 1. To combine batches of different sizes, weight them by their
    numbers of tokens.

    Args:
        hidden_states: list of `num_layers + 1` float tensors `(batch, length,
            hidden_dim)`, the embedding output first, as a backbone returns with
            `return_hidden_states=True`.
        padding_mask: bool or int tensor `(batch, length)`, 1 for tokens to keep. If it
            is missing, all are kept.

    Returns:
        Dict of float32 tensors `(num_layers,)`: `l2_distance`, and `angle` in
        degrees, from 0 to 180.

    Raises:
        ValueError: for fewer than two states.

    Example:

    ```python
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    inputs = {
        "token_ids": keras.ops.array([[101, 1996, 4937, 102]]),
        "padding_mask": keras.ops.ones((1, 4), "bool"),
    }
    states = backbone(inputs, return_hidden_states=True)["hidden_states"]
    keras_bertfam.analysis.layer_transitions(states, inputs["padding_mask"])
    ```

    Reference: [Lan et al., 2019](https://arxiv.org/abs/1909.11942), section 3.1.
    """
    if len(hidden_states) < 2:
        raise ValueError(
            "`hidden_states` must have at least the input and the output of a layer. "
            f"Received: {len(hidden_states)} state(s)."
        )
    states = [ops.cast(state, "float32") for state in hidden_states]
    weights = ops.ones(ops.shape(states[0])[:2], "float32")
    if padding_mask is not None:
        weights *= ops.cast(padding_mask, "float32")

    def mean(values):
        return ops.divide_no_nan(ops.sum(values * weights), ops.sum(weights))

    pairs = list(zip(states[:-1], states[1:], strict=True))
    return {
        "l2_distance": ops.stack([mean(_length(y - x)) for x, y in pairs]),
        "angle": ops.stack([mean(_angle(x, y)) for x, y in pairs]),
    }


def _length(x):
    return ops.sqrt(ops.sum(ops.square(x), axis=-1))


def _angle(x, y):
    """Compute the angle in degrees; small angles avoid the arc cosine's rounding."""
    x = ops.divide_no_nan(x, ops.expand_dims(_length(x), -1))
    y = ops.divide_no_nan(y, ops.expand_dims(_length(y), -1))
    return ops.rad2deg(2.0 * ops.arctan2(_length(y - x), _length(x + y)))


@checked
def plot_layer_transitions(
    transitions: Mapping[str, Any], path: Path | None = None, first: int = 1
) -> Any:
    """Draw ALBERT's figure 1: distance and angle over the layers, a panel for each.

    Args:
        transitions: result of `layer_transitions`; or a dict from names of models to
            such results, which are drawn together.
        path: file to write; its suffix (`.png`, `.svg`, `.pdf`) sets the format. Or
            `None`.
        first: int. The number of the first layer.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: for other `transitions`, or an empty dict.
        ImportError: without `matplotlib`, which the `analysis` extra has.

    Example:

    ```python
    backbone = keras_bertfam.models.BertBackbone.from_preset("my_bert")
    states = backbone({"token_ids": keras.ops.array([[2, 6, 7, 3]])},
        return_hidden_states=True)["hidden_states"]
    transitions = keras_bertfam.analysis.layer_transitions(states)
    keras_bertfam.analysis.plot_layer_transitions({"mine": transitions}, "layers.png")
    ```

    Reference: [Lan et al., 2019](https://arxiv.org/abs/1909.11942), section 3.1.
    """
    one = {*_PANELS} <= {*transitions}
    models = {"": transitions} if one else transitions
    whole = [isinstance(m, Mapping) and {*_PANELS} <= {*m} for m in models.values()]
    if not whole or not all(whole):
        raise ValueError(
            "`transitions` must be a result of `layer_transitions`, or a dict from "
            f"names of models to such results. Received: {transitions!r}."
        )
    figure, panels = plots.new_figure(len(_PANELS))
    for axes, (name, label) in zip(panels, _PANELS.items(), strict=True):
        for model, values in models.items():
            values = ops.convert_to_numpy(values[name])
            places = range(first, first + len(values))
            axes.plot(places, values, marker="o", label=model)
        axes.update_datalim([(first, 0)])  # both axes then begin with 0
        axes.autoscale_view()
        axes.set(xlabel="layer", ylabel=label)
        axes.xaxis.get_major_locator().set_params(integer=True)
        if "" not in models:
            plots.legend_beside(axes)
    return plots.written(figure, path)
