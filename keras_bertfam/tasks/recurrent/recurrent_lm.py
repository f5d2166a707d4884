"""Language modelling from left to right, with a memory of what came before."""

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
from keras_bertfam.layers.recurrent.memory import SegmentMemory
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
    """Predicts each token from those before it, those of earlier batches included.

    Call `fit()` to train, `generate()` to write texts, and `perplexity()` for that of
    text.

    With `memory_length` the inputs of each layer for a batch's tokens are kept for the
    next batch, whose rows go on from there. The data says which rows do (`continues`):
    those of the first batch in a pass don't, so each pass over the data starts with an
    empty memory. Evaluation leaves it as it was, and so does `generate`, which
    remembers all of a text.

    Args:
        backbone: `keras_bertfam.models.TransformerXLBackbone`.
        preprocessor: `RecurrentLMPreprocessor`, or `None` for data that is
            preprocessed already.
        memory_length: int. Tokens remembered; the paper's are as many as a row has.
            Defaults to `0`, no memory. With memory `fit()` takes arrays in their order.
        batch_size: int or `None`. Rows of a batch, over all replicas; needed for
            memory.
        generation: dict or `None`, see `CausalLM`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone, and with memory `continues`,
            bool `(batch,)`, without which memory is neither read nor changed.

    Returns:
        float32 tensor of shape `(batch, length, vocabulary_size)`: logits of the token
        after each, or log-probabilities with the backbone's `cutoffs`.

    Raises:
        ValueError: if there is memory but no `batch_size` that the replicas divide, or
            for a batch of another size than memory has.

    `compile()` without arguments is Transformer-XL's training: Adam with cosine decay,
    the mean cross-entropy, accuracy and perplexity.

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
        length = ops.shape(inputs["token_ids"])[1]
        self.memory.remember(outputs["memory"], continues, length)
        return self.predict_tokens(self.head, outputs["sequence_output"], labels=labels)

    def _check_rows(self, token_ids):
        rows = self.memory.batch_size
        if token_ids.shape[0] not in (None, rows):
            raise ValueError(
                f"A batch must have the {rows} rows that memory has, on each "
                f"replica. Received: token_ids.shape={tuple(token_ids.shape)}."
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
        """Go on with texts; see `CausalLM.generate` for what it has in common with it.

        Args:
            inputs: a string, a list of strings, also as bytes or a tensor, or ids:
                lists or an array, or a dict of the arrays `token_ids` and
                `padding_mask`. Lengths may differ.
            max_length: int. Tokens of a text, the prompt's included; as the next three
                by default as the task's `generation` says.
            sampler: name or one of `keras_hub.samplers`, or `"greedy"`.
            stop_token_ids: sequence of ids that end a text, a sequence of them for
                each text, or `None`. `"auto"` is what `generation` says, or the end
                token of the preprocessor's tokenizer, and none without one.
            settings: `GenerationSettings`, what texts may be and how many are given; or
                a dict of its arguments, in place of those of `generation`.

        Returns:
            What `inputs` were with what follows, as `CausalLM.generate` gives it.

        Raises:
            ValueError: for an empty prompt, no `max_length`, one that leaves no token
                to write or is beyond the settings' `max_tokens`, strings without a
                preprocessor, or settings that the sampler can't follow.

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
        """Give what writes a text: the backbone itself, and no context."""
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

        It is read in segments with a memory of its own, the last of which may be
        shorter. The first token is given.

        Args:
            text: str, or its ids.
            memory_length: int. Tokens remembered, also more than in training. `None`
                for as many as there.
            sequence_length: int. Tokens of a segment; `None` for those of a row.
            same_length: bool, see `TransformerXLBackbone`; `None` for its own.
            clamp_length: int, see `TransformerXLBackbone`; `None` for its own.

        Returns:
            float: the exponential of the tokens' mean cross-entropy, but the first's.

        Raises:
            ValueError: for a text of less than two tokens, lengths that aren't
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
