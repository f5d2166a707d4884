"""Tables of how the original TensorFlow 1 code writes a family."""

import dataclasses
from collections.abc import Mapping

# The names of a block's parts, which most families share.
BLOCK = ((r"(encoder|transformer)/layer_(\d+)/", r"\1.layer.\2."),)


@dataclasses.dataclass(frozen=True)
class TensorFlow1Table:
    """The names of a family's variables, and how its config differs.

    Attributes:
        signs: beginnings of names that only this family's checkpoints have. Of two
            families whose signs fit, the longer sign counts.
        names: pairs of a pattern of the original name and of that in `transformers`,
            applied in order, before those for all families.
        kernels: pattern of the variables that `transformers` has transposed.
        activation: key of the config for the activation. All have GELU's tanh form.
        renamed: dict from keys of `transformers` to those of the original config.
        head_width: keys of the width of a head, of the model and of the number of
            heads, where the config has all three.
        stacked: pattern of the variables that hold a tensor of two axes or more for
            each layer, their last part in its group. Those of two axes in all are one
            tensor for all layers.
        stacked_name: name of such a tensor in `transformers`, with `{layer}` and
            `{part}`.
        sizes_from_shapes: whether it was released without a config.
        generator: whether a second model, ELECTRA's generator, lies beside it.
        gin: whether it is Mesh TensorFlow's, whose config is a file of gin's.
    """

    signs: tuple[str, ...]
    names: tuple[tuple[str, str], ...] = ()
    kernels: str = "/kernel$"
    activation: str = "hidden_act"
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    head_width: tuple[str, str, str] | None = None
    stacked: str | None = None
    stacked_name: str = ""
    sizes_from_shapes: bool = False
    generator: bool = False
    gin: bool = False
