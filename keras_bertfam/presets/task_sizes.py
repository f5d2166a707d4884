"""Checks that a task's config in a preset fits what is stored beside it."""

import math
from typing import Any

from keras_bertfam.quantization import values_per_weight
from keras_bertfam.types import Config, Shapes

_PACKAGES = ("keras_bertfam>", "keras_hub>", "keras_nlp>")
# Arguments that are sizes of a task's own weights. Each gives the shape of one of
# them, from its value, the width of the backbone and the task's config.
_STORED_SIZES = {
    "num_classes": lambda n, width, config: (config.get("hidden_dim") or width, n),
    "hidden_dim": lambda n, width, config: (width, n),
    "position_dim": lambda n, width, config: (2 * width + n, width),
    "max_span_length": lambda n, width, config: (n, config.get("position_dim")),
}
# Products of these are allocated for what isn't stored: a memory, and new heads.
_NEW_SIZES = (
    ("batch_size", "memory_length", "num_layers", "hidden_dim"),
    ("num_classes", "hidden_dim"),
    ("vocabulary_size", "hidden_dim"),
    ("position_dim", "hidden_dim"),
    ("max_span_length", "hidden_dim"),
    ("max_span_length", "position_dim"),
)
_NEW_FOR_EACH = 100  # Numbers that aren't stored for each that is, at most
_ANY_PRESET, _ALL_NEW = 1 << 20, 1 << 30
_MAX_LENGTH = 1 << 20  # of rows, and of what is a part of a row


def check_task_sizes(
    task: Config, backbone: Config, shapes: Shapes, where: str
) -> None:
    """Raise a `ValueError` if a task's config can't be that of its weights.

    Classes of the user are not checked: what their arguments mean isn't known.

    Args:
        task: serialised object.
        backbone: serialised object, of which the task may have another copy.
        shapes: dict, the shapes of the task's own weights.
        where: str, for the message.
    """
    if not str(task["registered_name"]).startswith(_PACKAGES):
        return
    config, width = _with_classes(task["config"]), _width(backbone)
    if _width(config.get("backbone", backbone)) != width:
        raise ValueError(
            f"The backbone in {where!r} must have the hidden_dim={width!r} of that "
            f"beside it. Received: {_width(config['backbone'])!r}."
        )
    sizes = {
        name: config[name] for name in _STORED_SIZES if config.get(name) is not None
    }
    for name, size in sizes.items():
        shape = _STORED_SIZES[name](size, width, config)
        forms = _stored_forms(shape, values_per_weight(config.get("quantized_layers")))
        if type(size) is not int or not forms & {*shapes.values()}:
            raise ValueError(
                f"{where!r} doesn't fit its weights. Expected a weight of the shape "
                f"{shape} for {name}={size!r}. Received: {sorted({*shapes.values()})}."
            )


def _stored_forms(shape, packed):
    """List the shapes that a weight may have in a file: one axis may be packed."""
    forms = {shape}
    if packed > 1 and all(isinstance(dim, int) for dim in shape):
        for axis, dim in enumerate(shape):
            forms.add((*shape[:axis], -(-dim // packed), *shape[axis + 1 :]))
    return forms


def check_new_weights(
    backbone: Config,
    preprocessor: Config | None,
    task: Config | None,
    shapes: Shapes,
    where: str,
) -> None:
    """Raise a `ValueError` if far more would be allocated than is stored.

    Args:
        backbone: serialised object.
        preprocessor: serialised object or `None`.
        task: serialised object or `None`.
        shapes: dict, the shapes of all weights that are stored.
        where: str, for the message.
    """
    most = max(_ANY_PRESET, _NEW_FOR_EACH * sum(map(math.prod, shapes.values())))
    if not shapes:  # all of it is new
        most = _ALL_NEW
    for part in (preprocessor, task):
        config = {} if part is None else _with_classes(part["config"])
        names = config.get("label_names") or []
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise ValueError(
                f"`label_names` in {where!r} must be a list of strings. "
                f"Received: {names!r}."
            )
        sizes = {**config, **backbone["config"]}
        for group in _NEW_SIZES:
            values: list[Any] = [sizes.get(name) for name in group]
            if all(type(value) is int for value in values) and math.prod(values) > most:
                raise ValueError(
                    f"{where!r} declares far more than is stored in it. Expected: at "
                    f"most {most} numbers. Received: {', '.join(group)} = {values}."
                )


def _with_classes(config):
    names = config.get("label_names")
    if config.get("num_classes") is None and isinstance(names, list):
        return {**config, "num_classes": len(names)}
    return config


def _width(backbone):
    config = backbone.get("config") if isinstance(backbone, dict) else None
    return config.get("hidden_dim") if isinstance(config, dict) else None


def check_lengths(config: Any, where: str) -> None:
    """Raise a `ValueError` for a preprocessor or tokenizer of endless rows.

    Classes of the user are not checked.

    Args:
        config: serialised object; what is within it is checked as well.
        where: str, for the message.
    """
    if not str(config.get("registered_name") or _PACKAGES[0]).startswith(_PACKAGES):
        return
    for name, value in config.items():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                check_lengths(part, where)
            elif isinstance(part, int) and part > _MAX_LENGTH and name != "seed":
                raise ValueError(
                    f"`{name}` in {where!r} must be at most {_MAX_LENGTH}. "
                    f"Received: {part}."
                )
