"""Model language from left to right, with a memory of earlier text: Transformer-XL."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.arguments import checked
from keras_bertfam.keras_quirks.without_gradients import without_gradients
from keras_bertfam.layers.heads.adaptive import AdaptiveSoftmax
from keras_bertfam.layers.heads.vocabulary_logits import TiedLogits
from keras_bertfam.layers.recurrent.memory import SegmentMemory, without_padding
from keras_bertfam.models.families.transformer_xl import TransformerXLBackbone
from keras_bertfam.tasks.generation.defaults import (
    checked_generation,
    generation_config,
)
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.tasks.generation.writing import (
    TextWriter,
    checked_decoder,
    continue_texts,
    logits_by,
)
from keras_bertfam.tasks.losses import MaskedCrossentropy, token_metrics
from keras_bertfam.tasks.recurrent.recurrent_lm_preprocessor import (
    RecurrentLMPreprocessor,
)
from keras_bertfam.tasks.task import LABELS, PretrainingTask
from keras_bertfam.types import Config, Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class RecurrentLM(PretrainingTask):
    """Predicts each token from those before it, also from those of earlier batches.

    Call `fit()` to train, `generate()` to write texts, and `perplexity()` to measure
    the perplexity of a text.

    With `memory_length` each layer's inputs for a batch's tokens are kept as memory,
    and rows of the next batch continue from it. The data says which rows continue
    (`continues`). Rows of an epoch's first batch don't, so each epoch starts with an
    empty memory. `evaluate()` and `predict()` don't change the memory, but
    `test_on_batch()` does. `generate` remembers all of a text, in a memory of its own.

    Args:
        backbone: `keras_bertfam.models.TransformerXLBackbone`.
        preprocessor: `RecurrentLMPreprocessor`, or `None` for data that is
            preprocessed already.
        memory_length: int. Tokens remembered; the paper has as many as a row. Defaults
            to `0`, no memory. With memory `fit()` doesn't shuffle arrays.
        batch_size: int or `None`. Rows of a batch, over all replicas; needed for
            memory.
        generation: dict or `None`, see `CausalLM`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone, and with memory `continues`,
            bool `(batch,)`. Without it, memory is neither read nor changed.

    Returns:
        float32 tensor of shape `(batch, length, vocabulary_size)`: at each position,
        the logits of the next token; log-probabilities if the backbone has `cutoffs`.

    Raises:
        ValueError: for memory without a `batch_size` that is a multiple of the
            replicas, or a batch of another size than the memory's.

    `compile()` without arguments sets up Transformer-XL's training: Adam with cosine
    decay, the mean cross-entropy, accuracy and perplexity.

    Reference: [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.

    Example:

    ```python
    backbone = keras_bertfam.models.TransformerXLBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    model = keras_bertfam.tasks.RecurrentLM(backbone, memory_length=8, batch_size=1)
    model({
        "token_ids": keras.ops.array([[5, 6, 7, 8]]),
        "continues": keras.ops.array([True]),
    }).shape  # (1, 4, 100)
    model.perplexity([5, 6, 7, 8, 5, 6, 7, 8], memory_length=16, sequence_length=2)
    model.generate([[5, 6, 7]], max_length=6)
    ```
    """

    backbone_cls = TransformerXLBackbone
    preprocessor_cls = RecurrentLMPreprocessor
    recipe_family = "transfo-xl"
    label_kind = "token"
    reads_labels = True
    fixed_arguments = ("memory_length", "batch_size")

    def __init__(
        self,
        backbone: Model,
        preprocessor: RecurrentLMPreprocessor | None = None,
        memory_length: int = 0,
        batch_size: int | None = None,
        generation: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **kwargs)
        self.generation = checked_generation(generation, backbone.vocabulary_size)
        self.memory_length = memory_length
        self.batch_size = batch_size
        self.memory = None
        if memory_length:
            self.memory = SegmentMemory(
                backbone.num_layers,
                self._rows_of_a_replica(),
                memory_length,
                backbone.hidden_dim,
                dtype=backbone.dtype_policy,
                name="memory",
            )
            self.memory.build()
        head: Any = AdaptiveSoftmax if backbone.cutoffs else TiedLogits
        self.head = head(
            backbone.token_embedding, dtype=backbone.dtype_policy, name="logits"
        )
        self.head.build((None, None, backbone.hidden_dim))
        self.built = True
        self.compile_by_default()

    def _rows_of_a_replica(self):
        replicas = distribution.num_replicas()
        if self.memory_length < 0 or not self.batch_size or self.batch_size % replicas:
            raise ValueError(
                "`batch_size` must be given for memory, as a multiple of the "
                f"{replicas} replicas, and `memory_length` not be negative. Received: "
                f"batch_size={self.batch_size}, memory_length={self.memory_length}."
            )
        return self.batch_size // replicas

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = dict(inputs)
        continues = inputs.pop("continues", None)
        labels = inputs.pop(LABELS, None)
        if self.memory is None or continues is None:
            states = self.backbone(inputs, training=training)["sequence_output"]
            return self.predict_tokens(self.head, states, labels=labels)
        continues = ops.cast(continues, "bool")
        self._check_rows(inputs["token_ids"])
        outputs = self.backbone(
            {**inputs, **self.memory(continues)},
            memory_length=self.memory_length,
            training=training,
        )
        new = without_padding(inputs)
        self.memory.remember(outputs["memory"], continues, new)
        return self.predict_tokens(self.head, outputs["sequence_output"], labels=labels)

    def _check_rows(self, token_ids):
        rows = self.memory.batch_size
        if token_ids.shape[0] not in (None, rows):
            raise ValueError(
                f"A batch must have {rows} rows on each replica, as the memory has. "
                f"Received: token_ids.shape={tuple(token_ids.shape)}."
            )

    @checked
    def generate(
        self,
        inputs: Any,
        max_length: int | None = None,
        sampler: Any = None,
        stop_token_ids: Any = "auto",
        settings: GenerationSettings | Mapping[str, Any] | None = None,
    ) -> Any:
        """Continue texts; caching and compilation work as in `CausalLM.generate`.

        Args:
            inputs: a string, a list of strings, also as bytes or a tensor, or ids:
                lists or an array, or a dict of the arrays `token_ids` and
                `padding_mask`. Lengths may differ.
            max_length: int. The most tokens of a text, its prompt included. Defaults to
                the value of the task's `generation`, like the next three.
            sampler: name or one of `keras_hub.samplers`, or `"greedy"`.
            stop_token_ids: an id that ends a text, a sequence of such ids, one of them
                for each text, or `None`. `"auto"` takes those of `generation`, or else
                the end token of the preprocessor's tokenizer, if there is one.
            settings: `GenerationSettings`: rules for texts, and how many are returned.
                Or a dict of some of its arguments, which replace those of `generation`.

        Returns:
            The inputs with their continuations, as from `CausalLM.generate`.

        Raises:
            ValueError: for an empty prompt, no `max_length`, a `max_length` that leaves
                no token to write or is beyond the settings' `max_tokens`, strings
                without a preprocessor, or settings that the sampler can't follow.

        Example:

        ```python
        backbone = keras_bertfam.models.TransformerXLBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
            intermediate_dim=32)
        model = keras_bertfam.tasks.RecurrentLM(backbone)
        model.generate([[5, 6, 7], [8]], max_length=6)
        ```
        """
        return continue_texts(
            self, inputs, max_length, sampler, stop_token_ids, settings
        )

    def text_writer(self, inputs: dict[str, Tensor]) -> TextWriter:
        """Make the `TextWriter`: the backbone itself, without context."""
        return TextWriter(checked_decoder(self.backbone), {}, logits_by(self.head))

    @checked
    @without_gradients
    def perplexity(
        self,
        text: Any,
        memory_length: int | None = None,
        sequence_length: int | None = None,
        same_length: bool | None = None,
        clamp_length: int | None = None,
    ) -> float:
        """Measure the perplexity of a long text.

        The text is read in segments, with a memory of its own; the last segment may be
        shorter. The first token isn't predicted.

        Args:
            text: str, or its ids.
            memory_length: int. Tokens remembered; there may be more than in training.
                `None` for as many as in training.
            sequence_length: int. Tokens of a segment; `None` for the length of a row.
            same_length: bool, see `TransformerXLBackbone`; `None` for its own.
            clamp_length: int, see `TransformerXLBackbone`; `None` for its own.

        Returns:
            float: the exponential of the mean cross-entropy of all tokens except the
                first.

        Raises:
            ValueError: for a text of fewer than two tokens, lengths that aren't
                positive, or a string without a preprocessor.
        """
        ids = self._ids_of(text)
        memory_length = self.memory_length if memory_length is None else memory_length
        if sequence_length is None:
            known = self.preprocessor
            sequence_length = 128 if known is None else known.sequence_length
        if memory_length < 0 or sequence_length < 1:
            raise ValueError(
                "`sequence_length` must be positive, and `memory_length` not be "
                f"negative. Received: sequence_length={sequence_length}, "
                f"memory_length={memory_length}."
            )
        memory: Any = None
        total = 0.0
        for start in range(0, len(ids) - 1, sequence_length):
            segment = ids[start : start + sequence_length + 1][None]
            inputs = {"token_ids": segment[:, :-1]}
            outputs = self.backbone(
                inputs if memory is None else {**inputs, "memory": memory},
                memory_length=memory_length,
                same_length=same_length,
                clamp_length=clamp_length,
                training=False,
            )
            memory = outputs.get("memory")
            targets = ops.convert_to_tensor(segment[:, 1:])
            scores = self.head(outputs["sequence_output"], targets=targets)
            total += float(ops.convert_to_numpy(ops.sum(scores[..., 0])))
        return float(np.exp(total / (len(ids) - 1)))

    def _ids_of(self, text):
        if isinstance(text, str):
            if self.preprocessor is None:
                raise ValueError(
                    "`text` must be ids for a task without a preprocessor. "
                    f"Received: {text[:40]!r}."
                )
            text = self.preprocessor.tokenizer(text)
        ids = np.asarray(text, "int32")
        if ids.ndim != 1 or len(ids) < 2:
            raise ValueError(
                "`text` must be one text of at least two tokens. "
                f"Received: ids of shape {ids.shape}."
            )
        return ids

    def default_loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return token_metrics()

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "memory_length": self.memory_length,
            "batch_size": self.batch_size,
            **generation_config(self),
        }
