"""Distil a language model into a smaller one."""

from collections.abc import Mapping
from typing import Any, Self

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dense import take_positions
from keras_bertfam.presets import cards, folders
from keras_bertfam.presets.families.distilbert import DISTILBERT
from keras_bertfam.tasks.generation.causal_lm import CausalLM
from keras_bertfam.tasks.losses import token_crossentropy
from keras_bertfam.tasks.masking.masked_lm import added_queries
from keras_bertfam.tasks.masking.masked_lm_preprocessor import (
    DistillerPreprocessor,
)
from keras_bertfam.tasks.task import PretrainingTask
from keras_bertfam.types import Config, Model, Path, Tensor

_PARTS = ("student", "teacher", "preprocessor")
# Published weights of the loss's parts, by the place where they are published.
DISTILLATION_RECIPES = {
    # The released code's command for one GPU.
    "single_gpu": dict(DISTILBERT.pretraining[""].task_arguments),
    # The released code's command for several GPUs.
    "multi_gpu": {
        "ce_weight": 0.33,
        "mlm_weight": 0.33,
        "cosine_weight": 0.33,
        "mse_weight": 0.0,
    },
    # The released code's defaults. Their .5 for language modelling is for a causal
    # student.
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


@keras.saving.register_keras_serializable("keras_bertfam")
class Distiller(PretrainingTask):
    """Trains a student to predict as its teacher does, as DistilBERT.

    Call `fit()` to train `student`, which you then use and save.

    The loss is the weighted sum of

    - `temperature**2 * KL(teacher || student)` of the two softmaxes over the
      vocabulary at that temperature;
    - the student's cross-entropy at the masked positions, or at every next token;
    - `1 - cos` between the last hidden states of both, over all tokens but
      padding;
    - the squared difference of the logits, summed over the vocabulary.

    Soft targets and squared differences are averaged over all tokens except padding, or
    over the tokens with a target. The teacher gets the same input, without dropout, and
    isn't trained. Its weights keep their `trainable`, for other uses.

    Only the student is saved: `save()` and `save_to_preset()` write the student's task,
    and `save_weights()` writes its weights.

    Args:
        student: `keras_bertfam.tasks.MaskedLM`, or `CausalLM` as for DistilGPT2. It is
            trained in place. Their `from_teacher` makes one that begins with layers of
            the teacher.
        teacher: a task of the student's kind.
        preprocessor: a preprocessor for the student's task. `None` takes a `CausalLM`'s
            own; for others it makes a `DistillerPreprocessor` with the student's
            tokenizer and row length. A student without a preprocessor gets the given
            one.
        temperature: float, positive.
        ce_weight: float. Weight of the soft targets.
        mlm_weight: float. Weight of the student's own cross-entropy.
        cosine_weight: float. Weight of the distance of states. If it isn't 0, the
            student must be as wide as the teacher.
        mse_weight: float. Weight of the squared differences of logits.
        soft_targets: `"all"` or `"masked"`: the tokens with soft targets.
            `"masked"` computes logits of a `MaskedLM` for these only.
        **kwargs: arguments of `keras.Model`.

    The default weights are `DISTILLATION_RECIPES["single_gpu"]`; the paper gives no
    weights.

    Call arguments:
        inputs: dict of tensors, the student's inputs with `mask_positions`.

    Returns:
        Dict of float32 tensors: `logits` and `teacher_logits` `(batch, length or
        count, vocabulary_size)`, `hidden` and `teacher_hidden` `(batch, length,
        hidden_dim)` if the cosine has a weight, and `mlm_logits` `(batch, count,
        vocabulary_size)`.

    `fit()` takes the batches of `preprocessor.dataset()`. `compile()` without arguments
    sets up the released code's training.

    Raises:
        ValueError: for a student and a teacher that don't go together, a weight below
            0, or only weights of 0.

    Reference: [Sanh et al., 2019](https://arxiv.org/abs/1910.01108), sections 2
    and 3.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    teacher = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    student = keras_bertfam.tasks.MaskedLM.from_teacher(teacher)
    model = keras_bertfam.tasks.Distiller(student, teacher)
    model.fit(model.preprocessor.dataset(documents, batch_size=32), epochs=3)
    student.save_to_preset("my_distilbert")
    ```
    """

    preprocessor_cls = DistillerPreprocessor
    recipe_family = "distilbert"
    label_kind = "token"

    def __init__(
        self,
        student: Model,
        teacher: Model,
        preprocessor: Any = None,
        temperature: float = 2.0,
        ce_weight: float = 5.0,
        mlm_weight: float = 2.0,
        cosine_weight: float = 1.0,
        mse_weight: float = 0.0,
        soft_targets: str = "all",
        **kwargs: Any,
    ) -> None:
        given = student.preprocessor
        if preprocessor is None and given is not None:
            preprocessor = given
            if not isinstance(student, CausalLM):
                preprocessor = DistillerPreprocessor(
                    given.tokenizer,
                    given.sequence_length,
                    seed=given.seed,
                    languages=getattr(given, "languages", None),
                    separators=getattr(given, "separators", None),
                )
        elif given is None:
            student.preprocessor = preprocessor
        super().__init__(student.backbone, preprocessor, **kwargs)
        self.student = student
        self.teacher = teacher
        self.temperature = temperature
        self.ce_weight = ce_weight
        self.mlm_weight = mlm_weight
        self.cosine_weight = cosine_weight
        self.mse_weight = mse_weight
        self.soft_targets = soft_targets
        self._check_arguments()
        self.built = True
        self.compile_by_default()

    def _check_arguments(self):
        kinds = [isinstance(model, CausalLM) for model in (self.student, self.teacher)]
        if kinds[0] != kinds[1]:
            raise ValueError(
                "`student` and `teacher` must both be a `CausalLM`, or neither of "
                f"them. Received: {type(self.student).__name__} and "
                f"{type(self.teacher).__name__}."
            )
        if self.soft_targets not in ("all", "masked"):
            raise ValueError(
                '`soft_targets` must be "all" or "masked". '
                f"Received: {self.soft_targets!r}."
            )
        if not self.temperature > 0:
            raise ValueError(
                f"`temperature` must be positive. Received: {self.temperature}."
            )
        names = ("ce_weight", "mlm_weight", "cosine_weight", "mse_weight")
        weights = {name: getattr(self, name) for name in names}
        if min(weights.values()) < 0 or not any(weights.values()):
            raise ValueError(
                "The weights must not be negative, and one must be positive. "
                f"Received: {weights}."
            )
        if self.student is self.teacher:
            raise ValueError("`student` must be another model than `teacher`.")
        readers = [model.preprocessor for model in (self.student, self.teacher)]
        if None not in readers:
            tokenizers = [reader.tokenizer for reader in readers]
            for number in range(min(x.vocabulary_size() for x in tokenizers)):
                token, other = (x.id_to_token(number) for x in tokenizers)
                if token != other:
                    raise ValueError(
                        "`student` must have the teacher's tokens. Received for the id "
                        f"{number}: {token!r} and {other!r}."
                    )
        equal = ["vocabulary_size", *(["hidden_dim"] if self.cosine_weight else [])]
        for name in equal:
            ours = getattr(self.student.backbone, name)
            theirs = getattr(self.teacher.backbone, name)
            if ours != theirs:
                raise ValueError(
                    f"`student` must have the teacher's {name}={theirs}"
                    f"{', or cosine_weight=0' if name == 'hidden_dim' else ''}. "
                    f"Received: {name}={ours}."
                )

    @property
    def _compares_logits(self):
        return bool(self.ce_weight or self.mse_weight)

    @property
    def _compares_all_logits(self):
        return self._compares_logits and self.soft_targets == "all"

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        inputs = dict(inputs)
        slots = inputs.pop("mask_positions", None)  # a `CausalLM` has none
        hidden = self._hidden(self.student, inputs, slots, training)
        logits = self._logits(self.student, hidden, slots)
        outputs = {"logits": logits, "mlm_logits": logits}
        if self._compares_all_logits and slots is not None:
            outputs["mlm_logits"] = take_positions(logits, slots)
        if self.cosine_weight or self._compares_logits:
            theirs = self._hidden(self.teacher, inputs, slots, training=False)
            theirs = ops.stop_gradient(theirs)
        if self.cosine_weight:
            outputs["hidden"], outputs["teacher_hidden"] = hidden, theirs
        if self._compares_logits:
            logits = self._logits(self.teacher, theirs, slots)
            outputs["teacher_logits"] = ops.stop_gradient(logits)
        return outputs

    def _hidden(self, model, inputs, slots, training):
        """Give the last hidden states, of masked positions only if that is enough."""
        if self.cosine_weight or self._compares_all_logits:
            slots = None
        more = {}
        if getattr(model, "position_queries", None) is not None:
            more["added_queries"] = added_queries(model.position_queries, inputs, slots)
        outputs = model.backbone(
            inputs, positions=slots, return_pooled=False, training=training, **more
        )
        return outputs["sequence_output"]

    def _logits(self, model, hidden, slots):
        everywhere = slots is None or self._compares_all_logits
        if self.cosine_weight and not everywhere:
            hidden = take_positions(hidden, slots)
        return model.head(hidden)

    @property
    def loss_counts(self) -> int:
        # The masked tokens, and all tokens of a row.
        return 2 if self.cosine_weight or self._compares_all_logits else 1

    def own_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Tensor:
        slots = ops.ones_like(y) if sample_weight is None else sample_weight
        slots = ops.cast(slots, "float32")
        tokens = x.get("padding_mask")
        tokens = ops.ones_like(x["token_ids"]) if tokens is None else tokens
        tokens = ops.cast(tokens, "float32")
        masked, present = ops.sum(slots), ops.sum(tokens)
        losses = token_crossentropy(y, y_pred["mlm_logits"])
        total = self.mlm_weight * _mean(losses, slots, masked)
        if self._compares_logits:
            logits = y_pred["logits"], y_pred["teacher_logits"]
            losses = self.ce_weight * soft_target_loss(*logits, self.temperature)
            losses += self.mse_weight * ops.sum(ops.square(logits[0] - logits[1]), -1)
            everywhere = self._compares_all_logits
            of_which = (tokens, present) if everywhere else (slots, masked)
            total += _mean(losses, *of_which)
        if self.cosine_weight:
            losses = cosine_distance(y_pred["hidden"], y_pred["teacher_hidden"])
            total += self.cosine_weight * _mean(losses, tokens, present)
        return total + self.added_losses()

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        return super().compute_metrics(x, y, y_pred["mlm_logits"], sample_weight)

    def default_loss(self) -> None:
        return None

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return self.student.default_metrics()

    def unused_variables(self) -> list[keras.Variable]:
        return [*self.teacher.variables, *self.student.unused_variables()]

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the student, as `keras.Model.save` does."""
        self.student.save(*args, **kwargs)

    def save_weights(self, *args: Any, **kwargs: Any) -> None:
        """Save the student's weights, as `keras.Model.save_weights` does."""
        self.student.save_weights(*args, **kwargs)

    def load_weights(self, *args: Any, **kwargs: Any) -> None:
        """Load the student's weights, as `keras.Model.load_weights` does."""
        self.student.load_weights(*args, **kwargs)

    @checked
    def save_to_preset(
        self,
        preset_dir: Path,
        max_shard_size: float = 10,
        card: Mapping[str, Any] | None = None,
    ) -> None:
        """Save the student, as its own `save_to_preset` does."""
        with folders.preset_aside(preset_dir) as folder:
            self.student.save_to_preset(folder, max_shard_size, card)
            cards.write(folder, self.student, self.training_facts(), card)

    def input_signature(self) -> dict[str, keras.InputSpec]:
        """Give the student's inputs, as its own `input_signature` does."""
        return self.student.input_signature()

    def export(self, *args: Any, **kwargs: Any) -> None:
        """Export the student, as its own `export` does."""
        self.student.export(*args, **kwargs)

    @classmethod
    def from_preset(
        cls, preset: Path, load_weights: bool = True, **kwargs: Any
    ) -> Self:
        """Raise a `ValueError`: presets hold students, not distillers."""
        raise ValueError(
            "A preset holds no distiller. Load student and teacher with "
            "`MaskedLM.from_preset` or `CausalLM.from_preset` and pass them to "
            "`Distiller`. "
            f"Received: preset={preset!r}."
        )

    def get_config(self) -> Config:
        parts = {name: getattr(self, name) for name in _PARTS}
        config = {n: x and keras.layers.serialize(x) for n, x in parts.items()}
        return {
            **config,
            "temperature": self.temperature,
            "ce_weight": self.ce_weight,
            "mlm_weight": self.mlm_weight,
            "cosine_weight": self.cosine_weight,
            "mse_weight": self.mse_weight,
            "soft_targets": self.soft_targets,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        parts = {
            name: config[name] and keras.saving.deserialize_keras_object(config[name])
            for name in _PARTS
            if name in config  # earlier files have no preprocessor
        }
        return cls(**{**config, **parts})


def _mean(losses, weights, weight):
    return distribution.global_mean(ops.sum(losses * weights), weight)
