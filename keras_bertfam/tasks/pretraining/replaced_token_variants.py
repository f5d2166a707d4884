"""ELECTRA and the variants it was compared with: targets, losses and metrics."""

import typing

import keras
from keras import ops

from keras_bertfam.layers.heads.sampling import replace_at
from keras_bertfam.tasks.losses import (
    DetectionCrossentropy,
    MaskedCrossentropy,
    WeightedMeanLoss,
    token_metrics,
)
from keras_bertfam.types import Tensor


class Variant(typing.NamedTuple):
    """What the discriminator says, where it says it, and its loss's weight."""

    kind: str  # "detect", "predict" or "copy"
    where: str  # "everywhere" or "masked"
    weight: float

    def targets(
        self, x: dict[str, Tensor], token_ids: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Say what generator and discriminator should say about a batch.

        Args:
            x: dict of tensors, the inputs of a call with masks.
            token_ids: int tensor `(batch, length)`, the tokens that the
                discriminator saw.

        Returns:
            A pair of dicts with the keys `generator` and `discriminator`: targets,
            and float32 weights. The targets of a detecting discriminator are 1 for
            replaced.
        """
        positions = ops.cast(x["mask_positions"], "int32")
        if self.where == "masked":
            originals, weights = x["mask_ids"], x["mask_weights"]
            token_ids = ops.take_along_axis(token_ids, positions, axis=1)
        else:
            real = x["mask_weights"] > 0
            originals = replace_at(x["token_ids"], positions, x["mask_ids"], real)
            weights = x.get("padding_mask")
            weights = ops.ones_like(originals) if weights is None else weights
        targets = ops.cast(originals, "int32")
        if self.kind == "detect":
            targets = ops.cast(ops.not_equal(targets, token_ids), "float32")
        weights = {"generator": x["mask_weights"], "discriminator": weights}
        return (
            {"generator": x["mask_ids"], "discriminator": targets},
            {name: ops.cast(value, "float32") for name, value in weights.items()},
        )

    def loss(self) -> WeightedMeanLoss:
        """Make a loss of the discriminator."""
        detects = self.kind == "detect"
        return DetectionCrossentropy() if detects else MaskedCrossentropy()

    def metrics(self) -> dict[str, list[keras.metrics.Metric]]:
        """New weighted metrics of generator and discriminator."""
        return {
            "generator": token_metrics(),
            "discriminator": _detecting_metrics()
            if self.kind == "detect"
            else token_metrics(),
        }

    def metric_inputs(
        self, x: dict[str, Tensor], outputs: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
        """Give targets, predictions and weights as `compute_metrics` takes them."""
        targets, weights = self.targets(x, outputs["token_ids"])
        predictions = {name: outputs[name] for name in targets}
        if self.kind == "detect":
            predictions["discriminator"] = ops.sigmoid(outputs["discriminator"])
            # Keras's binary metrics average over the last axis.
            for part in (targets, predictions, weights):
                part["discriminator"] = ops.expand_dims(part["discriminator"], -1)
        return targets, predictions, weights


def _detecting_metrics():
    return [
        keras.metrics.BinaryCrossentropy(name="loss"),
        keras.metrics.BinaryAccuracy(name="accuracy"),
        keras.metrics.Precision(name="precision"),
        keras.metrics.Recall(name="recall"),
        keras.metrics.AUC(name="auc"),
    ]


VARIANTS = {
    "electra": Variant("detect", "everywhere", 50.0),
    "electra_15": Variant("detect", "masked", 50.0),
    "replace_mlm": Variant("predict", "masked", 1.0),
    "all_tokens_mlm": Variant("copy", "everywhere", 1.0),
}
