"""Build the heads with which language models give logits of tokens, for each family."""

from collections.abc import Callable
from typing import Any

from keras_bertfam.layers.heads.heads import MaskedLMHead
from keras_bertfam.layers.heads.vocabulary_logits import LanguageModelHead, TiedLogits
from keras_bertfam.types import Model


def masked_lm_head(
    backbone: Model,
    cls: Callable[..., Any] = MaskedLMHead,
    name: str = "masked_lm_head",
) -> Any:
    """Build the head of a masked language model, in the form of the backbone's family.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone`.
        cls: `MaskedLMHead`, or a subclass that is the same for all families.
        name: str.

    Returns:
        A layer.
    """
    kind = _kind_of(backbone) if cls is MaskedLMHead else None
    if kind == "table":
        arguments: dict[str, Any] = {"initializer": backbone.make_initializer()}
        cls = LanguageModelHead
    elif kind == "bias":
        arguments = {}
        cls = TiedLogits
    else:
        arguments = {
            "activation": backbone.activation,
            "layer_norm_epsilon": backbone.layer_norm_epsilon,
            "initializer": backbone.make_initializer(),
            "use_bias": getattr(backbone, "norm_bias", True),
        }
    return _built(cls, backbone, name, arguments)


def language_model_head(backbone: Model) -> Any:
    """Build the head of a model of next tokens, in the form of the backbone's family.

    Args:
        backbone: a backbone with a token embedding.

    Returns:
        A layer.
    """
    name = "language_model_head"
    if _kind_of(backbone) == "transform":
        return masked_lm_head(backbone, name=name)
    # Embedding tables of unit variance need scaled states for logits of usual size.
    unit = getattr(backbone, "initializer_range", 1.0) is None
    scaled = unit and getattr(backbone, "tie_embeddings", True)
    scaled = getattr(backbone, "scale_outputs", scaled)
    arguments = {
        "scale": backbone.hidden_dim**-0.5 if scaled else 1.0,
        "initializer": backbone.make_initializer(),
    }
    return _built(LanguageModelHead, backbone, name, arguments)


def _kind_of(backbone):
    return getattr(backbone.record, "token_head", None)


def _built(cls, backbone, name, arguments):
    head = cls(
        backbone.token_embedding, dtype=backbone.dtype_policy, name=name, **arguments
    )
    head.build((None, None, backbone.hidden_dim))
    return head
