"""Train virtually adversarially: answers should stay if embeddings move a little.

Reference: [He et al., 2020](https://arxiv.org/abs/2006.03654), section 4,
scale-invariant fine-tuning, by its released code.
"""

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.analysis.gradients import gradient_of
from keras_bertfam.layers.blocks.embedding import EncoderEmbedding, TokenEmbedding
from keras_bertfam.layers.blocks.perturbation import perturbing
from keras_bertfam.models.encoder_decoder import EncoderDecoderBackbone
from keras_bertfam.tasks.losses import WeightedMeanLoss
from keras_bertfam.types import Config, Model, Tensor

# Values of the released scripts, in standard deviations of an embedding.
NOISE = 1e-2
STEP = 1e-4


@keras.saving.register_keras_serializable("keras_bertfam")
class SoftCrossentropy(WeightedMeanLoss):
    """`sum(weight * crossentropy) / sum(weight)` of predictions and probabilities.

    Args:
        from_logits: bool. `False` if `y_pred` are probabilities.

    Call arguments:
        y_true: float tensor `(..., num_classes)`, probabilities.
        y_pred: float tensor of that shape.
        sample_weight: float tensor `(...)`; all one if missing.

    Returns:
        float32 scalar, in nats.

    Example:

    ```python
    from keras_bertfam.tasks.finetuning.adversarial import SoftCrossentropy
    SoftCrossentropy()([[0.5, 0.5]], [[0.0, 0.0]])  # ln 2
    ```
    """

    def __init__(
        self, name: str = "soft_crossentropy", from_logits: bool = True
    ) -> None:
        super().__init__(name=name)
        self.from_logits = from_logits

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        y_true, y_pred = ops.cast(y_true, "float32"), ops.cast(y_pred, "float32")
        if self.from_logits:
            logarithms = ops.log_softmax(y_pred, axis=-1)
        else:
            logarithms = ops.log(ops.maximum(y_pred, 1e-12))
        return -ops.sum(y_true * logarithms, axis=-1)

    def get_config(self) -> Config:
        return {**super().get_config(), "from_logits": self.from_logits}


def check_adversarial(task: Model, weight: float) -> None:
    """Raise a `ValueError` for a task that can't be trained adversarially.

    Args:
        task: a fine-tuning task.
        weight: float, at least 0.
    """
    if not weight:
        return
    why = None
    if task.soft_loss() is None:
        why = "expected a task that predicts classes or numbers"
    elif getattr(task, "lm_weight", 0):
        why = "expected lm_weight=0, no added loss of a language model"
    elif _embedding_of(task.backbone) is None:
        why = "expected a backbone with a table of token embeddings"
    if why is not None:
        raise ValueError(
            f"`adversarial_weight` must be 0 here: {why}. Received: {weight}, for a "
            f"{type(task).__name__} with a {type(task.backbone).__name__}."
        )


def adversarial_loss(
    task: Model, x: dict[str, Tensor], y_pred: Tensor, sample_weight: Tensor | None
) -> Tensor:
    """Compute how much outputs change where embeddings are moved against them.

    Noise is drawn, and moved one step in the direction in which outputs change the
    most. The loss compares the outputs at the moved embeddings with the usual outputs
    as targets, and the usual outputs with the moved ones as targets. Targets have no
    gradient.

    Args:
        task: a fine-tuning task.
        x: dict of tensors, the inputs of a batch.
        y_pred: what the task returned for them, in training.
        sample_weight: weights of the examples, or `None`.

    Returns:
        float32 scalar.
    """
    layer, loss = _embedding_of(task.backbone), task.soft_loss()
    target = ops.stop_gradient(task.soft_targets(y_pred))

    def outputs(delta):
        with perturbing(layer, delta):
            return task(x, training=True)

    def change(delta, target):
        return ops.sum(loss.call(target, outputs(delta)))

    length = ops.shape(x["token_ids"])[-1]
    rows = ops.size(x["token_ids"]) // length
    # All replicas have the same seed, so that each takes its part of one draw.
    replicas, own = distribution.num_replicas(), distribution.replica_id()
    delta = keras.random.normal(
        (replicas * rows, length, _width(layer)), stddev=NOISE, seed=task.noise_seed
    )
    if replicas > 1:
        delta = delta[own * rows : (own + 1) * rows]
    delta = ops.clip(ops.cast(delta, "float32"), -2 * NOISE, 2 * NOISE)
    gradient = gradient_of(change, task)(delta, target)
    gradient = ops.where(ops.isfinite(gradient), gradient, 0.0)
    largest = ops.max(ops.abs(gradient), axis=-1, keepdims=True)
    delta = ops.stop_gradient(delta + STEP * gradient / (1e-6 + largest))
    moved = outputs(delta)
    back = loss(ops.stop_gradient(task.soft_targets(moved)), y_pred, sample_weight)
    return loss(target, moved, sample_weight) + back


def _embedding_of(backbone):
    """Find the layer that embeds the tokens of a text, or `None`."""
    if isinstance(backbone, EncoderDecoderBackbone):
        backbone = backbone.encoder
    layers = (
        getattr(backbone, name, None) for name in ("embeddings", "token_embedding")
    )
    known = (
        each for each in layers if isinstance(each, EncoderEmbedding | TokenEmbedding)
    )
    return next(known, None)


def _width(layer):
    if isinstance(layer, TokenEmbedding):
        return layer.output_dim
    return layer.config.embedding_dim
