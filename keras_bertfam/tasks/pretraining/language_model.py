"""What tasks that write texts token by token have in common."""

import types
from collections.abc import Mapping
from typing import Any

import keras

from keras_bertfam.layers.heads.lm_head import LanguageModelHead
from keras_bertfam.tasks.losses import token_metrics
from keras_bertfam.tasks.pretraining.generated_losses import LanguageModelCrossentropy
from keras_bertfam.tasks.pretraining.generation_defaults import checked_generation
from keras_bertfam.tasks.published import recipe_of
from keras_bertfam.tasks.task import PretrainingTask
from keras_bertfam.types import Config, Model


def make_head(backbone: Model) -> LanguageModelHead:
    """Make a head of a backbone's tables."""
    # Those of unit variance need states of that of their inverse.
    unit = getattr(backbone, "initializer_range", 1.0) is None
    scaled = unit and getattr(backbone, "tie_embeddings", True)
    scaled = getattr(backbone, "scale_outputs", scaled)
    head = LanguageModelHead(
        backbone.token_embedding,
        scale=backbone.hidden_dim**-0.5 if scaled else 1.0,
        initializer=backbone.make_initializer(),
        dtype=backbone.dtype_policy,
        name="language_model_head",
    )
    head.build((None, None, backbone.hidden_dim))
    return head


class LanguageModel(PretrainingTask):
    """Base of the tasks whose targets are the tokens that follow.

    Args:
        backbone: a backbone with a token embedding.
        preprocessor: what makes batches of texts, or `None`.
        z_loss: float or `None`, see `LanguageModelCrossentropy`; `None` for that of the
            recipe.
        label_smoothing: float, see `LanguageModelCrossentropy`.
        generation: dict or `None`. What `generate()` does unless it is told: keys and
            values of a `generation_config.json` of `transformers`, such as
            `{"num_beams": 4, "max_new_tokens": 60, "forced_bos_token_id": 0}`. It is
            read from the folders of `transformers`, and written there.
        **kwargs: arguments of `keras.Model`.
    """

    label_kind = "token"
    reads_labels = True

    def __init__(
        self,
        backbone: Model,
        preprocessor: Any = None,
        z_loss: float | None = None,
        label_smoothing: float = 0.0,
        generation: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **kwargs)
        if z_loss is None:
            z_loss = recipe_of(self).task_arguments.get("z_loss", 0.0)
        self.z_loss = z_loss
        self.label_smoothing = label_smoothing
        self.generation = types.MappingProxyType(
            checked_generation(generation, backbone.vocabulary_size)
        )
        self.default_loss()  # or an error
        self.head = make_head(backbone)
        self.built = True
        self.compile_by_default()

    def default_loss(self) -> LanguageModelCrossentropy:
        return LanguageModelCrossentropy(self.z_loss, self.label_smoothing)

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return token_metrics()

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "z_loss": self.z_loss,
            "label_smoothing": self.label_smoothing,
            **({"generation": {**self.generation}} if self.generation else {}),
        }
