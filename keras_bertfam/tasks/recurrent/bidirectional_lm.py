"""Model language in both directions: ELMo."""

from typing import Any

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.heads.vocabulary_logits import SampledLogits
from keras_bertfam.layers.recurrent.memory import StateMemory
from keras_bertfam.models.families.elmo import ElmoBackbone
from keras_bertfam.tasks.losses import MaskedCrossentropy, token_metrics
from keras_bertfam.tasks.recurrent.bidirectional_lm_preprocessor import (
    BidirectionalLMPreprocessor,
)
from keras_bertfam.tasks.task import LABELS, PretrainingTask
from keras_bertfam.types import Config, Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class BidirectionalLM(PretrainingTask):
    """Predicts the next word in each direction, with ELMo's LSTMs and one softmax.

    Call `fit()` to train, and `evaluate()` for its perplexity.

    Rows with even numbers run forward, those with odd numbers backward: the first word
    of a backward row is the last word of its text. With `batch_size` the LSTMs' states
    are kept as memory. Rows of the next batch continue from them if the data says so
    (`continues`). Each epoch begins with empty states. `evaluate()` and `predict()`
    don't change the memory, but `test_on_batch()` does. `fit()` keeps the order of
    rows that are given as arrays, because each two belong together.

    Args:
        backbone: `keras_bertfam.models.ElmoBackbone`.
        preprocessor: `BidirectionalLMPreprocessor`, or `None` for data that is
            preprocessed already.
        batch_size: int or `None`. Rows of a batch, over all replicas and both
            directions; `None` for no memory.
        num_sampled: int or `None`. Number of words with which training compares the
            right one, see `SampledLogits`; the published number is 8192. The vocabulary
            must be sorted by frequency. `None` for the full softmax, which evaluation
            always uses.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, those of the backbone, and `continues`, bool
            `(batch,)`. Without it, memory is neither read nor changed.

    Returns:
        float32 tensor of shape `(batch, length, vocabulary_size)`, logits.

    Raises:
        ValueError: for a `batch_size` that isn't a multiple of 2 on each replica, a
            batch of another size than the memory's, an odd batch, or a `num_sampled`
            that isn't positive.

    `compile()` without arguments sets up ELMo's training: Adagrad at .2, gradients
    clipped to 10, the mean of both directions' cross-entropies, accuracy and
    perplexity. With `num_sampled` the metrics of training are those among the sampled
    words.

    Reference: [Peters et al., 2018](https://arxiv.org/abs/1802.05365), section 3.1.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.ElmoTokenizer(
        ["<S>", "</S>", "<UNK>", "Ada", "wrote", "."])
    preprocessor = keras_bertfam.tasks.BidirectionalLMPreprocessor(tokenizer)
    backbone = keras_bertfam.models.ElmoBackbone(
        vocabulary_size=6, num_layers=2, hidden_dim=16, cell_dim=32,
        embedding_dim=4, filters=[(1, 8), (3, 8)], num_highways=1)
    model = keras_bertfam.tasks.BidirectionalLM(backbone, preprocessor)
    inputs, _, _ = preprocessor(["Ada wrote."])
    model(inputs).shape  # (2, 20, 6)
    ```
    """

    backbone_cls = ElmoBackbone
    preprocessor_cls = BidirectionalLMPreprocessor
    recipe_family = "elmo"
    label_kind = "token"
    reads_labels = True
    has_pairs_of_rows = True
    fixed_arguments = ("batch_size", "num_sampled")

    def __init__(
        self,
        backbone: Model,
        preprocessor: BidirectionalLMPreprocessor | None = None,
        batch_size: int | None = None,
        num_sampled: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **kwargs)
        self.batch_size = batch_size
        self.num_sampled = num_sampled
        common = {"dtype": backbone.dtype_policy}
        self.memory = None
        if batch_size is not None:
            self.memory = StateMemory(
                self._pairs_of_a_replica(),
                backbone.lstm.state_widths,
                name="memory",
                **common,
            )
            self.memory.build()
        width = backbone.hidden_dim // 2
        self.output_dropout = Dropout(backbone.dropout, name="output_dropout", **common)
        self.output_table = TokenEmbedding(
            backbone.vocabulary_size,
            width,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=width**-0.5),
            name="output_table",
            **common,
        )
        self.output_table.build((None, None))
        self.head = SampledLogits(
            self.output_table, num_sampled, name="logits", **common
        )
        self.head.build((None, None, width))
        self.built = True
        self.compile_by_default()

    def _pairs_of_a_replica(self):
        replicas = distribution.num_replicas()
        if self.batch_size < 1 or self.batch_size % (2 * replicas):
            raise ValueError(
                "`batch_size` must be a multiple of 2, for both directions, on each of "
                f"the {replicas} replicas. Received: batch_size={self.batch_size}."
            )
        return self.batch_size // (2 * replicas)

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = dict(inputs)
        continues = inputs.pop("continues", None)
        labels = inputs.pop(LABELS, None)
        self.backbone.check_inputs(inputs)
        self._check_rows(inputs["character_ids"], continues)
        states = None
        if self.memory is not None and continues is not None:
            states = self.memory(ops.cast(continues, "bool")[::2])
        half = 2 * self.backbone.num_layers
        x = self.backbone.characters(inputs["character_ids"])
        mask = inputs.get("padding_mask")
        found, after = [], []
        for odd, direction in enumerate(("forward", "backward")):
            before = None if states is None else states[odd * half : (odd + 1) * half]
            layers, new = self.backbone.lstm.run(
                x[odd::2],
                direction,
                padding_mask=None if mask is None else mask[odd::2],
                states=before,
                as_it_comes=True,
                training=training,
            )
            found.append(layers[-1])
            after += new
        if self.memory is not None and states is not None:
            self.memory.remember(after)
        y = ops.reshape(ops.stack(found, axis=1), ops.shape(x))
        y = self.output_dropout(y, training=training)
        return self.predict_tokens(self.head, y, labels=labels)

    def _check_rows(self, character_ids, continues):
        rows = character_ids.shape[0]
        if rows is not None and rows % 2:
            raise ValueError(
                "A batch must have as many rows forward as backward. Received: "
                f"character_ids.shape={tuple(character_ids.shape)}."
            )
        if self.memory is None or continues is None:
            return
        expected = 2 * self.memory.batch_size
        if rows not in (None, expected):
            raise ValueError(
                f"A batch must have {expected} rows on each replica, as the memory "
                f"has. Received: character_ids.shape={tuple(character_ids.shape)}."
            )

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile as other tasks; `num_sampled` goes with this library's losses alone.

        Raises:
            ValueError: with `num_sampled`, for a loss or metric that reads logits of
                all words.
        """
        super().compile(*args, **kwargs)
        if self.num_sampled is not None and self._scoring != "scores":
            raise ValueError(
                "`num_sampled` must be `None` for losses and metrics that read the "
                "logits of all words, as others than this library's for tokens do. "
                f"Received: num_sampled={self.num_sampled}, with {self.loss} and "
                f"{kwargs.get('weighted_metrics', kwargs.get('metrics'))}."
            )

    def default_loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return token_metrics()

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "batch_size": self.batch_size,
            "num_sampled": self.num_sampled,
        }
