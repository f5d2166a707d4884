"""The heads that find answers, by name and by family."""

from typing import Any

from keras_bertfam.layers.modeling.span_head import (
    ConditionalSpanHead,
    SpanHead,
    TransformedSpanHead,
)
from keras_bertfam.types import Model

END_HEADS = {"independent": SpanHead, "conditional": ConditionalSpanHead}


def check_end_head(end_head: str) -> None:
    """Raise a `ValueError` for another name than those of `END_HEADS`."""
    if end_head not in END_HEADS:
        raise ValueError(
            f"`end_head` must be one of {sorted(END_HEADS)}. Received: {end_head!r}."
        )


def make_span_head(end_head: str, backbone: Model) -> SpanHead:
    """A head of the kind that the backbone's family has.

    Args:
        end_head: a key of `END_HEADS`.
        backbone: a backbone.

    Returns:
        A layer that isn't built.
    """
    style, layers = getattr(backbone.record, "head_style", None), {}
    cls: Any = END_HEADS[end_head]
    if style is not None and style.tokens and end_head == "independent":
        cls, layers = TransformedSpanHead, style.layers(backbone)
    return cls(
        **layers,
        initializer=backbone.make_initializer(),
        dtype=backbone.dtype_policy,
        name="head",
    )
