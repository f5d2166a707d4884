"""Learning-rate schedules and the published optimizers."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.optimizers.accumulation import (
        accumulates,
        batch_weighed,
        weigh_batches,
        weighed,
    )
    from keras_bertfam.optimizers.adafactor import Adafactor
    from keras_bertfam.optimizers.base import (
        AdamW,
        exclude_norms_and_biases,
        excludes_norms_and_biases,
        rates_set_by,
    )
    from keras_bertfam.optimizers.lamb import BertAdamW, Lamb
    from keras_bertfam.optimizers.layerwise import (
        LayerwiseAdamW,
        fine_tuning_epsilon,
        fine_tuning_optimizer,
        layerwise_scales,
    )
    from keras_bertfam.optimizers.pretraining import (
        count_updates,
        needs_total_steps,
        pretraining_optimizer,
        resolve_schedule,
    )
    from keras_bertfam.optimizers.schedules import (
        InverseSquareRootDecay,
        WarmupPolynomialDecay,
        check_accumulation,
    )

__all__ = [
    "Adafactor",
    "AdamW",
    "BertAdamW",
    "InverseSquareRootDecay",
    "Lamb",
    "LayerwiseAdamW",
    "WarmupPolynomialDecay",
    "accumulates",
    "batch_weighed",
    "check_accumulation",
    "count_updates",
    "exclude_norms_and_biases",
    "excludes_norms_and_biases",
    "fine_tuning_epsilon",
    "fine_tuning_optimizer",
    "layerwise_scales",
    "needs_total_steps",
    "pretraining_optimizer",
    "rates_set_by",
    "resolve_schedule",
    "weigh_batches",
    "weighed",
]

lazy.attach(__name__)
