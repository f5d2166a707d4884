"""Learning-rate schedules and the published pre-training optimizer."""

from keras_bertfam.optimizers.layerwise import (
    LayerwiseAdamW,
    fine_tuning_epsilon,
    fine_tuning_optimizer,
    layerwise_scales,
)
from keras_bertfam.optimizers.pretraining import (
    exclude_norms_and_biases,
    excludes_norms_and_biases,
    needs_total_steps,
    pretraining_optimizer,
    resolve_schedule,
)
from keras_bertfam.optimizers.schedules import WarmupPolynomialDecay

__all__ = [
    "LayerwiseAdamW",
    "WarmupPolynomialDecay",
    "exclude_norms_and_biases",
    "excludes_norms_and_biases",
    "fine_tuning_epsilon",
    "fine_tuning_optimizer",
    "layerwise_scales",
    "needs_total_steps",
    "pretraining_optimizer",
    "resolve_schedule",
]
