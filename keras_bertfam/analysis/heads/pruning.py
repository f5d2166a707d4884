"""Prune the heads that models don't need, and score the pruned models."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.analysis.heads.importance import labelled_batches, score, trunk_of
from keras_bertfam.analysis.plots import new_figure, written
from keras_bertfam.analysis.word_states import backbone_of
from keras_bertfam.arguments import checked
from keras_bertfam.keras_quirks.model_layers import layers_of
from keras_bertfam.layers.attention.stack_heads import NoAttention
from keras_bertfam.presets.converting.conversion import skip_initialization
from keras_bertfam.types import Model, Path

# Parts of attention layers with weights for each head, besides the output projection:
# dense layers, and weights `(parts, num_heads, head_dim)`.
_BY_HEADS = (
    "qkv",
    "global_qkv",
    "query",
    "key_value",
    "relative",
    "relative_key",
    "relative_query",
    "biases",
    "segments",
)


def prune_heads(model: Model, heads: Mapping[int, Iterable[int]]) -> Model:
    """Copy a model without the weights of some heads.

    The copy computes the same as the model with a `head_mask` of 0 for these heads, but
    is smaller and faster. It can be saved, loaded, trained and exported like other
    models. A layer without heads keeps the output's bias. Gates (`HeadGates`) become
    part of the weights, with their values in inference. Formats of other libraries
    can't hold such a model.

    Args:
        model: a backbone with a single stack of layers, or a task with one; not of
            BART, T5, ELMo, MPNet or Transformer-XL, nor with heads that share keys.
        heads: dict from numbers of layers to the heads to prune. Heads keep their
            numbers: in a model that is pruned already, they are those of the original
            model. Layers that share their attention, as in ALBERT, must lose the same
            heads.

    Returns:
        A model of the same class, whose backbone has the argument `pruned_heads`. A
        task is compiled like a new one, and has the same preprocessor.

    Raises:
        ValueError: for another kind of model, a model that is quantised or has LoRA
            weights, or heads that don't exist.

    Reference: [Michel et al., 2019](https://arxiv.org/abs/1905.10650), section 4.

    Example:

    ```python
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    pruned = keras_bertfam.analysis.prune_heads(backbone, {0: [1]})
    pruned.count_params() < backbone.count_params()  # True
    ```
    """
    stack = trunk_of(model)
    gone = [set(range(stack.num_heads)) - {*stack.heads_of(k)} for k in _layers(stack)]
    if not isinstance(heads, Mapping) or not all(
        layer in _layers(stack) and np.iterable(given) and not isinstance(given, str)
        for layer, given in heads.items()
    ):
        raise ValueError(
            "`heads` must have lists of heads by layers, from 0 to "
            f"{stack.num_layers - 1}. Received: {heads!r}."
        )
    known = range(stack.num_heads)
    for layer, numbers in heads.items():
        if wrong := [n for n in numbers if isinstance(n, bool) or n not in known]:
            raise ValueError(
                f"`heads` must have ints from 0 to {stack.num_heads - 1}. Received for "
                f"layer {layer}: {wrong}."
            )
        gone[layer] |= {int(n) if isinstance(n, np.integer) else n for n in numbers}
    pruned = [sorted(each, key=str) for each in gone]
    return _remade(model, pruned_heads=pruned, head_gates=None)


def add_head_gates(model: Model, **arguments: Any) -> Model:
    """Copy a model, and add gates that close heads in training.

    Args:
        model: see `prune_heads`.
        **arguments: arguments of `HeadGates`, such as `penalty` and
            `learning_rate_multiplier`.

    Returns:
        A model of the same class, whose backbone has the argument `head_gates`. The
        gates are `backbone.encoder.gates`.

    Raises:
        ValueError: for another kind of model, a model that is quantised, has LoRA
            weights or already has gates, or arguments out of their range.

    Reference: [Voita et al., 2019](https://arxiv.org/abs/1905.09418), section 6.

    Example:

    ```python
    from keras_bertfam.analysis.heads.pruning import add_head_gates
    model = keras_bertfam.tasks.TextClassifier.from_preset(
        "my_bert", label_names=["negative", "positive"])
    model = add_head_gates(
        model, penalty=0.05, learning_rate_multiplier=1000)
    model.fit(["a fine film", "a dull one"], ["positive", "negative"])
    closed = model.backbone.encoder.gates.closed_heads()
    model = keras_bertfam.analysis.prune_heads(model, closed)
    ```
    """
    stack = trunk_of(model)
    if stack.gates is not None:
        raise ValueError(
            "`model` must have no gates. Received one with "
            f"head_gates={dict(stack.head_gates)}."
        )
    return _remade(model, head_gates=arguments)


def _layers(stack):
    return range(stack.num_layers)


def _remade(model, **arguments):
    """Copy a model with other arguments for its backbone's heads."""
    _check_plain(model)
    backbone = backbone_of(model)
    if missing := arguments.keys() - {*backbone.argument_names}:
        raise ValueError(
            f"`model` must be of a family with `{min(missing)}`. Received: "
            f"{type(backbone).__name__}."
        )
    with skip_initialization():
        new = type(backbone).from_config({**backbone.get_config(), **arguments})
    if model is not backbone:
        config = {**model.get_config(), "backbone": new}
        if "preprocessor" in config:
            config["preprocessor"] = model.preprocessor
        new = type(model).from_config(config)
    _copy_attention(trunk_of(model), trunk_of(new))
    pairs = zip(_others(model), _others(new), strict=True)
    for old_weight, new_weight in pairs:
        new_weight.assign(ops.copy(old_weight))  # JAX would share the buffer
    return new


def _check_plain(model):
    """Raise a `ValueError` for quantised, adapted or shared weights."""
    for layer in layers_of(model):
        changed = [
            name
            for name in ("quantization_mode", "lora_enabled")
            if getattr(layer, name, None)
        ]
        if changed:
            raise ValueError(
                "`model` must be neither quantised nor have LoRA weights. Received: "
                f"{changed[0]}={getattr(layer, changed[0])!r} in {layer.name!r}."
            )
        if getattr(layer, "computed", None) and not hasattr(model, "backbone"):
            raise ValueError(
                "`model` must have its own tables: `copy_discriminator()` of its task "
                f"returns such a model. Received: {layer.name!r} without."
            )


def _others(model):
    """List the weights of a model that don't belong to attention or gates, in order."""
    stack = trunk_of(model)
    layers = [layer.sublayer for layer in stack.attention_layers]
    layers += [stack.gates] if stack.gates is not None else []
    left_out = {id(weight) for layer in layers for weight in layer.weights}
    return [weight for weight in model.weights if id(weight) not in left_out]


def _copy_attention(old, new):
    """Copy the attention weights of the heads that stay, multiplied by their gates."""
    gates = np.ones((old.num_layers, old.num_heads), "float32")
    if old.gates is not None and new.gates is None:
        gates = old.gates.values()
    for layer in _layers(old):
        theirs, ours = (_attention(stack, layer) for stack in (old, new))
        before, after = old.heads_of(layer), new.heads_of(layer)
        if isinstance(ours, NoAttention):
            if ours.use_bias:
                empty = isinstance(theirs, NoAttention)
                bias = theirs.bias if empty else theirs.output_dense.bias
                ours.bias.assign(ops.copy(bias))
            continue
        places = [before.index(head) for head in after]
        for name in _BY_HEADS:
            for old_part, new_part in zip(
                _weights(theirs, name), _weights(ours, name), strict=True
            ):
                _copy_columns(old_part, new_part, theirs, places)
        rows = ops.convert_to_numpy(theirs.output_dense.kernel)
        rows = rows.reshape(theirs.num_heads, theirs.head_dim, -1)[places]
        rows = rows * gates[layer, list(after), None, None]
        variable = ours.output_dense.kernel
        variable.assign(rows.reshape(variable.shape))
        if ours.output_dense.use_bias:
            ours.output_dense.bias.assign(ops.copy(theirs.output_dense.bias))


def _attention(stack, layer):
    layers = stack.attention_layers
    return layers[layer * len(layers) // stack.num_layers].sublayer


def _weights(layer, name):
    """List the weights of a part of a layer: a dense layer, a weight, or `None`."""
    part = getattr(layer, name, None)
    return getattr(part, "weights", [part] if part is not None else [])


def _copy_columns(old, new, attention, places):
    """Copy some heads of a weight that has heads in its last axis or axes."""
    values = ops.convert_to_numpy(old)
    if len(places) == attention.num_heads:  # all, which may share their keys
        new.assign(values)
        return
    if values.shape[-2:] != (attention.num_heads, attention.head_dim):
        sizes = (-1, attention.num_heads, attention.head_dim)
        values = values.reshape(*values.shape[:-1], *sizes)
    new.assign(values[..., places, :].reshape(new.shape))


@checked
def pruning_curve(
    model: Model,
    data: Any,
    importance: np.ndarray,
    shares: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    metric: str = "loss",
    *,
    batch_size: int = 32,
) -> dict[float, float]:
    """Score a model without its least important heads.

    Args:
        model: a compiled task, see `head_importance`.
        data: see `head_importance`. Use other data than for the importance.
        importance: float array `(num_layers, num_heads)`.
        shares: floats from 0 to 1, the shares of all heads to mask.
        metric: `"loss"` or the name of a compiled metric.
        batch_size: int.

    Returns:
        Dict from shares to scores, for `plot_pruning`.

    Raises:
        ValueError: as `head_importance`; for shares out of their range.

    Example:

    ```python
    model = keras_bertfam.tasks.TextClassifier.from_preset(
        "my_bert", label_names=["negative", "positive"])
    data = ["the cat sat", "a dog"], ["positive", "negative"]
    importance = keras_bertfam.analysis.head_importance(model, data)
    curve = keras_bertfam.analysis.pruning_curve(
        model, data, importance, metric="accuracy")
    ```
    """
    stack = trunk_of(model)
    if np.shape(importance) != (stack.num_layers, stack.num_heads):
        raise ValueError(
            "`importance` must be of the model's heads, of shape "
            f"{(stack.num_layers, stack.num_heads)}. "
            f"Received: shape={np.shape(importance)}."
        )
    batches = labelled_batches(model, data, batch_size)
    found = {}
    for share in shares:
        mask = np.ones((stack.num_layers, stack.num_heads), "float32")
        for layer, heads in least_important(importance, share).items():
            mask[layer, heads] = 0
        found[share] = score(model, stack, batches, mask, metric)
    return found


@checked
def least_important(importance: np.ndarray, share: float) -> dict[int, list[int]]:
    """Find the least important heads, for `prune_heads`.

    Args:
        importance: float array `(num_layers, num_heads)` from `head_importance`.
        share: float from 0 to 1, the share of all heads; their number is rounded down.

    Returns:
        Dict from layers to lists of heads. Of equally important heads, the first are
        taken.

    Raises:
        ValueError: for a share out of its range, or another shape.

    Example:

    ```python
    from keras_bertfam.analysis.heads.pruning import least_important
    importance = np.array([[0.1, 0.9], [0.5, 0.2]])
    least_important(importance, 0.5)  # {0: [0], 1: [1]}
    ```
    """
    importance = np.asarray(importance)
    if importance.ndim != 2 or not 0 <= share <= 1:
        raise ValueError(
            "`importance` must be an array `(num_layers, num_heads)` and `share` from "
            f"0 to 1. Received: shape={importance.shape}, share={share!r}."
        )
    if not np.isfinite(importance).all():
        raise ValueError(f"`importance` must be finite. Received: {importance}.")
    count = int(importance.size * share + 1e-9)
    order = np.argsort(importance, axis=None, kind="stable")[:count]
    found: dict[int, list[int]] = {}
    for place in sorted(order.tolist()):
        layer, head = divmod(place, importance.shape[1])
        found.setdefault(layer, []).append(head)
    return found


def plot_pruning(
    curves: Mapping[str, Mapping[float, float]],
    path: Path | None = None,
    axis_label: str = "score",
) -> Any:
    """Draw scores over the share of pruned heads, with a curve for each name.

    Args:
        curves: dict from names to results of `pruning_curve`.
        path: where to write it, by the ending of its name (`.png`, `.svg`, `.pdf`), or
            `None`.
        axis_label: str, the name of the score.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: without a curve.
        ImportError: without `matplotlib`, which the `analysis` extra has.

    Reference: [Michel et al., 2019](https://arxiv.org/abs/1905.10650), figure 3.

    Example:

    ```python
    from keras_bertfam.analysis.heads.pruning import plot_pruning
    plot_pruning(
        {"by gradient": {0.0: 0.92, 0.5: 0.9, 1.0: 0.5}}, "pruning.png", "accuracy")
    ```
    """
    if not curves:
        raise ValueError(f"`curves` must have a curve. Received: {curves!r}.")
    figure, [axes] = new_figure(1, 6)
    for name, curve in curves.items():
        shares = sorted(curve)
        scores = [curve[share] for share in shares]
        axes.plot([100 * share for share in shares], scores, marker="o", label=name)
    axes.set(xlabel="heads pruned, percent", ylabel=axis_label)
    axes.legend()
    return written(figure, path)
