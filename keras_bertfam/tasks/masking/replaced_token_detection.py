"""Detect replaced tokens; also the variants that the paper compares."""

import typing
from typing import Any, Self

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.keras_quirks.without_gradients import without_gradients
from keras_bertfam.layers.attention.masks import restarted_positions
from keras_bertfam.layers.blocks.dense import flat_dense, take_positions
from keras_bertfam.layers.blocks.table_differences import (
    disentangled,
    merged_weights,
)
from keras_bertfam.layers.heads.heads import MaskedLMHead
from keras_bertfam.layers.heads.replaced_tokens import (
    CopyingMaskedLMHead,
    ReplacedTokenHead,
    SampleTokens,
    replace_at,
)
from keras_bertfam.models.families.electra import make_generator
from keras_bertfam.tasks.losses import (
    DetectionCrossentropy,
    MaskedCrossentropy,
    WeightedMeanLoss,
    token_crossentropy,
    token_metrics,
)
from keras_bertfam.tasks.masking.masked_lm import (
    FillMask,
    MaskedLM,
    added_queries,
    position_queries,
)
from keras_bertfam.tasks.masking.replaced_token_detection_preprocessor import (
    ReplacedTokenDetectionPreprocessor,
)
from keras_bertfam.tasks.masking.span_boundary_lm import SpanBoundaryLM
from keras_bertfam.tasks.recipes import recipe_of
from keras_bertfam.tasks.task import (
    PretrainingTask,
    global_variables,
    pooler_variables,
)
from keras_bertfam.tasks.token_heads import masked_lm_head
from keras_bertfam.types import Config, Model, Tensor


class Variant(typing.NamedTuple):
    """Say what the discriminator predicts, at which tokens, and its loss's weight."""

    kind: str  # "detect", "predict" or "copy"
    where: str  # "everywhere" or "masked"
    weight: float
    adversarial: bool = (
        False  # whether the generator learns to raise the discriminator's loss
    )

    def targets(
        self, x: dict[str, Tensor], token_ids: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Make the targets of generator and discriminator for a batch.

        Args:
            x: dict of tensors, the inputs of a call with masks.
            token_ids: int tensor `(batch, length)`, the tokens given to the
                discriminator.

        Returns:
            A pair of dicts with the keys `generator` and `discriminator`: targets, and
            float32 weights. The targets of a detecting discriminator are 1 for replaced
            tokens.
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
        """Make the discriminator's loss."""
        detects = self.kind == "detect"
        return DetectionCrossentropy() if detects else MaskedCrossentropy()

    def metrics(self) -> dict[str, list[keras.metrics.Metric]]:
        """Make the weighted metrics of generator and discriminator."""
        return {
            "generator": token_metrics(),
            "discriminator": _detecting_metrics()
            if self.kind == "detect"
            else token_metrics(),
        }

    def metric_inputs(
        self, x: dict[str, Tensor], outputs: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
        """Give targets, predictions and weights in the form of `compute_metrics`."""
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
    "adversarial": Variant("detect", "everywhere", 50.0, adversarial=True),
}


SHARINGS = ("full", "gradient_disentangled")
_TIES_OF_TABLES = ("embeddings", "tokens")
_SLOTS = ("mask_positions", "mask_ids", "mask_weights")


@keras.saving.register_keras_serializable("keras_bertfam")
class ReplacedTokenDetection(FillMask, PretrainingTask):
    """ELECTRA: a generator fills masks, and a discriminator finds the replaced tokens.

    Call `fit()` to train, and `fill_mask()` to fill masks in texts with the generator.

    The loss is `L_G + discriminator_weight * L_D`: the generator's cross-entropy
    at the masked positions, and the discriminator's binary cross-entropy over all
    tokens except padding. A sampled token that equals the original counts as original.
    No gradient flows from the discriminator through the samples.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone`, the discriminator.
        preprocessor: `ReplacedTokenDetectionPreprocessor`, or `None` for batches
            that are masked already.
        generator: `None` to make one by the arguments below; or an `EncoderBackbone`,
            or a `MaskedLM` whose head is used, too. A given generator has its own
            embeddings and size: pass `tie="none"`, and neither of the next two.
            `from_preset` of a local folder takes the generator that DeBERTaV3's release
            has beside the discriminator, unless arguments ask for another one.
        generator_size: float in (0, 1]. Width of the generator as a share of the
            discriminator's. Defaults to the share of the published size that is nearest
            in width: 1/4 (small and large) or 1/3 (base).
        generator_depth: float in (0, 1]. Layers of the generator as a share of the
            discriminator's. Defaults to the recipe's: 1, and 1/2 for
            `DebertaV2Backbone`.
        tie: `"embeddings"`, `"tokens"`, `"none"` or `"all"`: what generator and
            discriminator share, see `keras_bertfam.models.make_generator`.
        sharing: how the tied tables are shared. `"full"`: there is one table, and both
            losses train it. `"gradient_disentangled"`: the generator's table is trained
            only by its own loss; the discriminator's is the sum of this table and a
            difference, zero at first, which its own loss trains (DeBERTaV3, section
            3.3). Norms aren't shared then. Defaults to `"gradient_disentangled"` for
            `DebertaV2Backbone`, and to `"full"` for others.
        variant: one of the paper's ablations. `"electra"`; `"electra_15"`: the
            discriminator's loss covers the masked positions only; `"replace_mlm"`: the
            discriminator predicts the original tokens at the masked positions;
            `"all_tokens_mlm"`: at all positions, and may copy; `"adversarial"`: as
            `"electra"`, but the generator learns to mislead the discriminator, see
            below.
        discriminator_weight: float, or `None` for the default: 50 for the detecting
            variants (10 for DeBERTaV3), and 1 for the others, for which the paper gives
            no weight.
        temperature: float. Temperature of the sampling.
        disallow_correct: bool. Whether the original token is never sampled.
        train_generator: bool. `False` freezes the generator, runs it without dropout
            and leaves its part of the loss out.
        seed: int or `None`. Seed of the sampling.
        add_first_token: bool or `None`. Whether a detecting head adds to each token's
            state the state of its sequence's first token, and normalises the sum.
            Checkpoints of DeBERTaV3 have such a head. Defaults to the recipe's: `True`
            for `DebertaV2Backbone`, `False` for others.
        decoder_positions: int or `None`. For a DeBERTa, the enhanced mask decoder of
            the generator, see `MaskedLM`. A given `MaskedLM` has its own.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone and, of shape `(batch,
            count)`, `mask_positions` (int, distinct where the weight isn't 0),
            `mask_ids` (int, the original tokens) and `mask_weights` (1, or 0 for
            empty slots). Without these three nothing is replaced, and the
            discriminator judges the given tokens.

    Returns:
        Dict of tensors. `discriminator`: float32 logits `(batch, length)`, positive
        for replaced; `(batch, count)` at the masked positions in `"electra_15"`;
        `(batch, count or length, vocabulary_size)` in the predicting variants.
        With masks also `generator`, float32 logits `(batch, count,
        vocabulary_size)`; `baseline`, `(batch, count)`, with an adversarial generator;
        and `token_ids`, int32 `(batch, length)`, the tokens given to the discriminator.

    With `variant="adversarial"` the generator is trained by REINFORCE to raise the
    discriminator's loss at the masked positions, and not by a cross-entropy. Let `R` be
    the discriminator's loss at a masked position, and `p` the probability that the
    generator gave to its sample. The generator's loss is the mean of `-(R - b) log p`;
    no gradient flows through `R - b`. The baseline `b = -log sigmoid(w h)`, from the
    generator's state `h`, predicts `R`. It is trained by the binary cross-entropy of
    `sigmoid(w h)` with `exp(-R)`, the discriminator's probability of the correct
    answer. The paper gives no weights for these parts; here they are 1.

    `fill_mask` uses the generator, because only the generator sees mask tokens.
    `compile()` without arguments is ELECTRA's training. After training,
    `model.discriminator` and `model.generator` are backbones with
    `save_to_preset`.

    The paper's alternative is two-stage training, which needs equal sizes. First train
    the generator, here "my_bert". Then start the discriminator as a copy of it, and
    train only the discriminator:

    ```python
    masked_lm = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    discriminator = keras_bertfam.models.BertBackbone.from_preset("my_bert")
    preprocessor = keras_bertfam.tasks.ReplacedTokenDetectionPreprocessor(
        masked_lm.preprocessor.tokenizer)
    model = keras_bertfam.tasks.ReplacedTokenDetection(
        discriminator, preprocessor,
        generator=masked_lm, tie="none", train_generator=False)
    ```

    With `sharing="gradient_disentangled"`, continue with `model.copy_discriminator()`,
    whose tables include the generator's part. Saved presets do, too. In DeBERTa's code
    the generator is updated before the discriminator reads its tables; here both are
    updated in one step.

    Each replica of a `tf.distribute` strategy draws its own samples: two replicas equal
    one device in distribution, and exactly as `temperature` goes to 0. Masked positions
    are distinct; in the released code they may repeat.

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555), section 2;
    variants: "Efficiency Analysis", adversarial: appendix F; `sharing`: [He et al.,
    2021](https://arxiv.org/abs/2111.09543), section 3.3.

    Example:

    ```python
    backbone = keras_bertfam.models.ElectraBackbone.from_preset(
        "electra_small_discriminator_uncased_en", load_weights=False)
    model = keras_bertfam.tasks.ReplacedTokenDetection(backbone)
    inputs = {"token_ids": keras.ops.array([[101, 7592, 102]])}
    model(inputs)["discriminator"].shape  # (1, 3)
    ```
    """

    preprocessor_cls = ReplacedTokenDetectionPreprocessor
    recipe_family = "electra"
    fixed_arguments = (
        "variant",
        "generator_size",
        "generator_depth",
        "tie",
        "sharing",
        "temperature",
        "seed",
        "add_first_token",
        "decoder_positions",
    )

    def __init__(
        self,
        backbone: Model,
        preprocessor: ReplacedTokenDetectionPreprocessor | None = None,
        generator: Model | None = None,
        generator_size: float | None = None,
        tie: str = "embeddings",
        variant: str = "electra",
        discriminator_weight: float | None = None,
        temperature: float = 1.0,
        disallow_correct: bool = False,
        train_generator: bool = True,
        seed: int | None = None,
        generator_depth: float | None = None,
        sharing: str | None = None,
        add_first_token: bool | None = None,
        decoder_positions: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **kwargs)
        if variant not in VARIANTS:
            raise ValueError(
                f"`variant` must be one of {tuple(VARIANTS)}. Received: {variant!r}."
            )
        self.variant = variant
        usual = recipe_of(self).task_arguments
        detects = self._variant.kind == "detect"
        if sharing is None:
            tied = generator is None and tie in _TIES_OF_TABLES
            sharing = usual.get("sharing", "full") if tied else "full"
        if generator is None and generator_size is None:
            generator_size = usual["generator_size"]
        if generator is None and generator_depth is None:
            generator_depth = 1.0 if tie == "all" else usual.get("generator_depth", 1.0)
        if discriminator_weight is None:
            discriminator_weight = self._variant.weight
            if detects:
                discriminator_weight = usual.get(
                    "discriminator_weight", discriminator_weight
                )
        if add_first_token is None:
            add_first_token = detects and usual.get("add_first_token", False)
        self.add_first_token = bool(add_first_token)
        self.generator_size = generator_size
        self.generator_depth = generator_depth
        self.tie = tie
        self.sharing = sharing
        self.discriminator_weight = discriminator_weight
        self.temperature = temperature
        self.disallow_correct = disallow_correct
        self.train_generator = train_generator
        self.seed = seed
        self._check_arguments(generator)
        self._make_generator(generator, decoder_positions)
        self._make_head()
        self.built = True
        self.compile_by_default()

    def _check_arguments(self, generator):
        if self.sharing not in SHARINGS:
            raise ValueError(
                f"`sharing` must be one of {SHARINGS}. Received: {self.sharing!r}."
            )
        if self.sharing != "full" and self.tie not in _TIES_OF_TABLES:
            raise ValueError(
                '`tie` must be "embeddings" or "tokens" with '
                f"sharing={self.sharing!r}. Received: tie={self.tie!r}."
            )
        learns = self.train_generator and not self.disallow_correct
        if self._variant.adversarial and not learns:
            raise ValueError(
                '`variant` "adversarial" must train its generator, which may also '
                "sample original tokens. Received: "
                f"disallow_correct={self.disallow_correct}, "
                f"train_generator={self.train_generator}."
            )
        if self.add_first_token and self._variant.kind != "detect":
            raise ValueError(
                "`add_first_token` must be `None` or `False` with a variant that "
                f"predicts tokens. Received: True, with variant={self.variant!r}."
            )
        for name in ("generator_size", "generator_depth"):
            if generator is not None and getattr(self, name) is not None:
                raise ValueError(
                    f"`{name}` must be `None` with a `generator`, which has a size of "
                    f"its own. Received: {getattr(self, name)}."
                )
        if generator is not None:
            self._check_generator(generator)

    def _make_generator(self, given, decoder_positions):
        """Make the generator, or take the given one, with all that samples from it."""
        self._generator_is_given = given is not None
        generator = given
        if generator is None:
            tied = self.tie if self.sharing == "full" else "none"
            generator = make_generator(
                self.backbone, self.generator_size, tied, self.generator_depth
            )
        queries = getattr(generator, "position_queries", None)
        if isinstance(generator, (MaskedLM, SpanBoundaryLM)):
            self.generator, self.generator_head = generator.backbone, generator.head
        else:
            self.generator = generator
            self.generator_head = masked_lm_head(generator, name="generator_head")
        own = queries and queries.max_positions
        if own and decoder_positions not in (None, own):
            raise ValueError(
                "`decoder_positions` must be the given `generator`'s, or `None`. "
                f"Expected: {own}. Received: {decoder_positions}."
            )
        if queries is None and decoder_positions is not None:
            queries = position_queries(self.generator, decoder_positions)
        self.generator_queries = queries
        self.decoder_positions = None if queries is None else queries.max_positions
        self.differences = None
        if self.sharing != "full":
            tables = self.backbone.embeddings, self.generator.embeddings
            self.differences = disentangled(*tables, self.tie == "embeddings")
        self.sampler = SampleTokens(self.temperature, self.seed, name="sampler")
        self.baseline = None
        if self._variant.adversarial:
            self.baseline = keras.layers.Dense(
                1,
                use_bias=False,
                kernel_initializer="zeros",
                dtype=self.backbone.dtype_policy,
                name="baseline",
            )
            self.baseline.build((None, self.generator.hidden_dim))

    def _make_head(self):
        backbone = self.backbone
        if self._variant.kind != "detect":
            copies = self._variant.kind == "copy"
            cls = CopyingMaskedLMHead if copies else MaskedLMHead
            self.head = masked_lm_head(backbone, cls, "head")
            return
        self.head = ReplacedTokenHead(
            activation=backbone.activation,
            initializer=backbone.make_initializer(),
            norm_epsilon=backbone.layer_norm_epsilon if self.add_first_token else None,
            dtype=backbone.dtype_policy,
            name="head",
        )
        self.head.build((None, None, backbone.hidden_dim))

    def _check_generator(self, generator):
        if self.tie != "none":
            raise ValueError(
                "A given `generator` has embeddings of its own. Expected: "
                f'tie="none". Received: tie={self.tie!r}.'
            )
        backbone = getattr(generator, "backbone", generator)
        if backbone.vocabulary_size != self.backbone.vocabulary_size:
            raise ValueError(
                "`generator` must have the discriminator's vocabulary. Expected: "
                f"vocabulary_size={self.backbone.vocabulary_size}. "
                f"Received: vocabulary_size={backbone.vocabulary_size}."
            )

    @property
    def _variant(self):
        return VARIANTS[self.variant]

    @property
    def discriminator(self) -> Model:
        """`EncoderBackbone`: the backbone that the task trains."""
        return self.backbone

    def copy_discriminator(self) -> Model:
        """Copy the discriminator, with its own tables even if they are shared here.

        Returns:
            A backbone of its class. All its weights can be trained.

        Example:

        ```python
        backbone = keras_bertfam.models.ElectraBackbone.from_preset(
            "electra_small_discriminator_uncased_en", load_weights=False)
        model = keras_bertfam.tasks.ReplacedTokenDetection(
            backbone, sharing="gradient_disentangled")
        classifier = keras_bertfam.tasks.TextClassifier(
            model.copy_discriminator(), num_classes=2)
        ```
        """
        copy = type(self.backbone).from_config(self.backbone.get_config())
        for source, target in zip(
            merged_weights(self.backbone), copy.weights, strict=True
        ):
            target.assign(ops.copy(source))  # JAX would share the buffer
        return copy

    @without_gradients
    def masked_lm_logits(self, inputs: dict[str, Tensor]) -> Tensor:
        inputs = dict(inputs)
        positions = inputs.pop("mask_positions")
        return self.generator_head(self._generator_states(inputs, positions, False))

    def _generator_states(self, inputs, positions, training):
        more = {}
        if self.generator_queries is not None:
            more["added_queries"] = added_queries(
                self.generator_queries, inputs, positions
            )
        states = self.generator(
            inputs, positions=positions, return_pooled=False, training=training, **more
        )
        return states["sequence_output"]

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        inputs = dict(inputs)
        slots = {name: inputs.pop(name) for name in _SLOTS if name in inputs}
        if not slots:
            return {"discriminator": self._discriminate(inputs, None, training)}
        if len(slots) < len(_SLOTS):
            raise ValueError(
                f"`inputs` must have all of {_SLOTS}, or none. "
                f"Received: {tuple(slots)}."
            )
        positions, ids, weights = slots.values()
        training_generator = training if self.train_generator else False
        states = self._generator_states(inputs, positions, training_generator)
        logits = self.generator_head(states)
        samples = self.sampler(logits, ids if self.disallow_correct else None)
        token_ids = replace_at(inputs["token_ids"], positions, samples, weights > 0)
        inputs["token_ids"] = token_ids
        outputs = {
            "generator": logits,
            "discriminator": self._discriminate(inputs, positions, training),
            "token_ids": token_ids,
        }
        if self.baseline is not None:
            expected = ops.squeeze(flat_dense(self.baseline, states), -1)
            outputs["baseline"] = ops.cast(expected, "float32")
        return outputs

    def _discriminate(self, inputs, positions, training):
        if self._variant.where != "masked":
            positions = None
        first = first_tokens(inputs, positions) if self.add_first_token else None
        if positions is not None and first is not None:
            positions = ops.cast(positions, "int32")
            positions = ops.concatenate([first, positions], axis=1)
        outputs = self.backbone(
            inputs, positions=positions, return_pooled=False, training=training
        )
        states = outputs["sequence_output"]
        if first is not None:
            if positions is None:
                return self.head(states, take_positions(states, first))
            count = first.shape[1]
            return self.head(states[:, count:], states[:, :count])
        if self._variant.kind != "copy":
            return self.head(states)
        return self.head(states, inputs["token_ids"])

    @property
    def loss_counts(self) -> int:
        # At masked positions both losses count the same tokens.
        both = self.train_generator and self._variant.where == "everywhere"
        return 2 if both else 1

    def own_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Tensor:
        if sample_weight is not None:
            raise ValueError(
                "`sample_weight` must be left out: `mask_weights` and `padding_mask` "
                f"say what counts. Received: {type(sample_weight).__name__}."
            )
        targets, weights = self._variant.targets(x, y_pred["token_ids"])
        loss = self.discriminator_weight * self._variant.loss()(
            targets["discriminator"], y_pred["discriminator"], weights["discriminator"]
        )
        if self._variant.adversarial:
            loss += self._policy_loss(x, y_pred)
        elif self.train_generator:
            loss += MaskedCrossentropy()(
                targets["generator"], y_pred["generator"], weights["generator"]
            )
        return loss + self.added_losses()

    def _policy_loss(self, x, y_pred):
        """Compute the losses of an adversarial generator and of its baseline."""
        positions = ops.cast(x["mask_positions"], "int32")
        weights = ops.cast(x["mask_weights"], "float32")
        samples, judged = (
            ops.take_along_axis(y_pred[name], positions, axis=1)
            for name in ("token_ids", "discriminator")
        )
        originals = ops.cast(x["mask_ids"], samples.dtype)
        replaced = ops.cast(ops.not_equal(samples, originals), "float32")
        reward = ops.stop_gradient(ops.softplus(judged) - judged * replaced)
        baseline = y_pred["baseline"]
        more = reward - ops.stop_gradient(ops.softplus(-baseline))
        logits = y_pred["generator"] / self.temperature
        policy = more * token_crossentropy(samples, logits)
        # The binary cross-entropy of the baseline and the probability of the correct
        # answer.
        expected = ops.softplus(baseline) - baseline * ops.exp(-reward)
        losses = (policy + expected) * weights
        return distribution.global_mean(ops.sum(losses), ops.sum(weights))

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        return super().compute_metrics(x, *self._variant.metric_inputs(x, y_pred))

    def default_loss(self) -> None:
        return None

    def default_metrics(self) -> dict[str, list[keras.metrics.Metric]]:
        return self._variant.metrics()

    def unused_variables(self) -> list[keras.Variable]:
        unused = [*super().unused_variables(), *pooler_variables(self.generator)]
        queries = self.generator_queries
        unused += global_variables(self.generator)
        if not self.train_generator:
            used = {id(v) for v in self.backbone.variables}
            frozen = [*self.generator.variables, *self.generator_head.variables]
            frozen += [] if queries is None else queries.variables
            unused += [v for v in frozen if id(v) not in used]
        return unused

    def get_config(self) -> Config:
        generator = None
        if self._generator_is_given:
            generator = keras.layers.serialize(self.generator)
        return {
            **super().get_config(),
            "generator": generator,
            "generator_size": self.generator_size,
            "tie": self.tie,
            "variant": self.variant,
            "discriminator_weight": self.discriminator_weight,
            "temperature": self.temperature,
            "disallow_correct": self.disallow_correct,
            "train_generator": self.train_generator,
            "seed": self.seed,
            "generator_depth": self.generator_depth,
            "sharing": self.sharing,
            "add_first_token": self.add_first_token,
            "decoder_positions": self.decoder_positions,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return super().from_config(_with_generator(config))

    @classmethod
    def _config_from(cls, preset, backbone):
        return _with_generator(super()._config_from(preset, backbone))


def _with_generator(config):
    """Make the generator of a saved config, if it was given."""
    generator = keras.saving.deserialize_keras_object(config.get("generator"))
    config = {**config, "generator": generator}
    if generator is not None:  # older files say sizes that had no effect
        config |= {"generator_size": None, "generator_depth": None}
    return config


def first_tokens(inputs: dict[str, Tensor], positions: Tensor | None) -> Tensor:
    """Find the first token of each token's sequence.

    Args:
        inputs: dict of tensors, those of a backbone.
        positions: int tensor `(batch, count)`, or `None` for all tokens.

    Returns:
        int32 tensor `(batch, count or length)`, or `(batch, 1)` if a row is one
        sequence.
    """
    ids = inputs.get("sequence_ids")
    if ids is None:
        return ops.zeros_like(inputs["token_ids"][:, :1], dtype="int32")
    places = ops.arange(ops.shape(ids)[1], dtype="int32") - restarted_positions(ids)
    if positions is None:
        return places
    return ops.take_along_axis(places, ops.cast(positions, "int32"), axis=1)
