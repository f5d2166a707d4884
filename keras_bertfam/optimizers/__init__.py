"""Learning-rate schedules and the published optimizers."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.optimizers.adafactor import Adafactor
    from keras_bertfam.optimizers.base import AdamW
    from keras_bertfam.optimizers.lamb import BertAdamW, Lamb
    from keras_bertfam.optimizers.layerwise import LayerwiseAdamW, fine_tuning_optimizer
    from keras_bertfam.optimizers.muon import Muon
    from keras_bertfam.optimizers.pretraining import pretraining_optimizer
    from keras_bertfam.optimizers.schedules import (
        InverseSquareRootDecay,
        WarmupPolynomialDecay,
    )
    from keras_bertfam.optimizers.stable_adamw import StableAdamW

__all__ = [
    "Adafactor",
    "AdamW",
    "BertAdamW",
    "InverseSquareRootDecay",
    "Lamb",
    "LayerwiseAdamW",
    "Muon",
    "StableAdamW",
    "WarmupPolynomialDecay",
    "fine_tuning_optimizer",
    "pretraining_optimizer",
]

lazy.attach(__name__)
