"""The task that a backbone's checkpoints are usually for."""

from typing import Any

from keras_bertfam.models.decoder import DecoderBackbone
from keras_bertfam.models.encoder_decoder import EncoderDecoderBackbone
from keras_bertfam.models.features import FeatureBackbone
from keras_bertfam.tasks.pretraining.bidirectional_lm import BidirectionalLM
from keras_bertfam.tasks.pretraining.causal_lm import CausalLM
from keras_bertfam.tasks.pretraining.masked_lm import MaskedLM
from keras_bertfam.tasks.pretraining.recurrent_lm import RecurrentLM
from keras_bertfam.tasks.pretraining.text_to_text import TextToText
from keras_bertfam.types import Model


def usual_task(backbone: Model) -> Any:
    """The class of a task that takes a backbone as it is.

    Args:
        backbone: any backbone of the library.

    Returns:
        `CausalLM` of a decoder, `TextToText` of an encoder with a decoder,
        `BidirectionalLM` of ELMo, `RecurrentLM` of Transformer-XL, and `MaskedLM` of
        others. A `FeatureBackbone` has that of its backbone.
    """
    if isinstance(backbone, FeatureBackbone):
        return usual_task(backbone.backbone)
    if isinstance(backbone, EncoderDecoderBackbone):
        return TextToText
    for task in (BidirectionalLM, RecurrentLM):
        if isinstance(backbone, task.backbone_cls):
            return task
    return CausalLM if isinstance(backbone, DecoderBackbone) else MaskedLM
