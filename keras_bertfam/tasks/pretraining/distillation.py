"""The parts of DistilBERT's loss, and their published weights."""

from keras import ops

from keras_bertfam.presets.families.distilbert import DISTILBERT
from keras_bertfam.types import Tensor

# The published weights of the parts of the loss, by where they are published.
DISTILLATION_RECIPES = {
    # The released code's command for one GPU.
    "single_gpu": dict(DISTILBERT.pretraining[""].task_arguments),
    # Its command for several GPUs.
    "multi_gpu": {
        "ce_weight": 0.33,
        "mlm_weight": 0.33,
        "cosine_weight": 0.33,
        "mse_weight": 0.0,
    },
    # Its defaults, whose .5 for language modelling is that of a causal student.
    "defaults": {
        "ce_weight": 0.5,
        "mlm_weight": 0.5,
        "cosine_weight": 0.0,
        "mse_weight": 0.0,
    },
}


def soft_target_loss(
    logits: Tensor, teacher_logits: Tensor, temperature: float
) -> Tensor:
    """Compute `temperature**2 * KL(teacher || student)` at each position, float32."""
    log_student = ops.log_softmax(logits / temperature)
    log_teacher = ops.log_softmax(teacher_logits / temperature)
    divergence = ops.exp(log_teacher) * (log_teacher - log_student)
    return temperature**2 * ops.sum(divergence, -1)


def cosine_distance(x: Tensor, y: Tensor) -> Tensor:
    """Compute `1 - cos` of the angle between two states at each position, float32."""
    x, y = ops.cast(x, "float32"), ops.cast(y, "float32")
    squares = ops.sum(ops.square(x), -1) * ops.sum(ops.square(y), -1)
    return 1 - ops.sum(x * y, -1) * ops.rsqrt(ops.maximum(squares, 1e-24))
