"""Model masked language, and fill the masks of texts."""

import numbers
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.keras_quirks.without_gradients import without_gradients
from keras_bertfam.layers.attention.masks import restarted_positions
from keras_bertfam.layers.data.user_inputs import as_strings
from keras_bertfam.layers.heads.heads import PositionQueries
from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.models.families.distilbert import DistilBertBackbone
from keras_bertfam.tasks.generation.prompts import as_prompts
from keras_bertfam.tasks.losses import MaskedCrossentropy, token_metrics
from keras_bertfam.tasks.masking.masked_lm_preprocessor import (
    MaskedLMPreprocessor,
)
from keras_bertfam.tasks.task import LABELS, PretrainingTask
from keras_bertfam.tasks.token_heads import masked_lm_head
from keras_bertfam.tokenizers import pipeline_ops
from keras_bertfam.types import Config, Mixin, Model, Tensor


class FillMask(Mixin):
    """Mixin of tasks that predict masked tokens: `fill_mask`."""

    @without_gradients
    def masked_lm_logits(self, inputs: dict[str, Tensor]) -> Tensor:
        """Compute vocabulary logits at the `mask_positions` of a batch.

        Args:
            inputs: dict of arrays: those of the backbone and `mask_positions`.

        Returns:
            float32 tensor `(batch, count, vocabulary_size)`. By default it is the
            task's output, or its output `"masked_lm"` if there are several.
        """
        outputs = self(inputs, training=False)
        return outputs["masked_lm"] if isinstance(outputs, dict) else outputs

    def token_strings(self) -> list[str]:
        """Give the string of each token id, readable also for byte-level tokenizers.

        Returns:
            List of `vocabulary_size` str of the preprocessor's tokenizer.
        """
        return pipeline_ops.token_strings(self.preprocessor.tokenizer)

    @checked
    def fill_mask(self, texts: str | Sequence[str], top_k: int = 5) -> list[Any]:
        """Predict the mask tokens in texts.

        Args:
            texts: str or list of str, with the tokenizer's mask token (`[MASK]` for
                BERT, `<mask>` for RoBERTa) wherever a token is to be predicted.
            top_k: int. How many tokens for each mask.

        Returns:
            For each text a list with one entry for each mask: a list of `(token,
            probability)` pairs, the most probable first. For a single str, its list.

        Raises:
            ValueError: if the task has no preprocessor, there is no text, a text
                has no mask token, or there are fewer tokens than `top_k`.

        Example:

        ```python
        model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
        model.fill_mask("The capital of France is [MASK].", top_k=1)
        # [[("paris", 0.42)]]
        ```
        """
        if self.preprocessor is None:
            raise ValueError("`fill_mask` needs a task with a preprocessor.")
        texts = as_prompts(texts)
        if isinstance(texts, str):
            return self.fill_mask([texts], top_k)[0]
        if texts is None or not np.size(texts):
            raise ValueError(f"`texts` must be at least one text. Received: {texts!r}.")
        texts = [text.decode() for text in as_strings(texts, name="texts").numpy()]
        tokenizer = self.preprocessor.tokenizer
        if not isinstance(top_k, numbers.Integral):
            raise ValueError(f"`top_k` must be an int. Received: {top_k!r}.")
        if not 1 <= top_k <= tokenizer.vocabulary_size():
            raise ValueError(
                f"`top_k` must be in [1, {tokenizer.vocabulary_size()}], the size of "
                f"the vocabulary. Received: {top_k}."
            )
        inputs = self.preprocessor.encode(texts)
        inputs = {name: np.asarray(value) for name, value in inputs.items()}
        masked = inputs["token_ids"] == tokenizer.mask_token_id
        for text, count in zip(texts, masked.sum(axis=1), strict=True):
            if count == 0:
                raise ValueError(
                    f"`texts` must contain {tokenizer.mask_token!r} within "
                    f"{inputs['token_ids'].shape[1]} tokens. Received: {text!r}."
                )
        order = np.argsort(~masked, axis=1, kind="stable")
        positions = order[:, : masked.sum(axis=1).max()].astype("int32")
        strings = self.token_strings()
        logits = self.masked_lm_logits({**inputs, "mask_positions": positions})
        logits = logits[..., : len(strings)]  # an embedding table may have more rows
        values, ids = ops.top_k(ops.softmax(logits), top_k)
        values, ids = ops.convert_to_numpy(values), ops.convert_to_numpy(ids)
        return [
            [
                [
                    (strings[token], float(value))
                    for token, value in zip(
                        ids[row, slot], values[row, slot], strict=True
                    )
                ]
                for slot in range(masked[row].sum())
            ]
            for row in range(len(texts))
        ]


@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedLM(FillMask, PretrainingTask):
    """Predicts masked tokens with any backbone of the library.

    Call `fit()` to train, `fill_mask()` to fill masks in texts, and `from_teacher()`
    for a smaller model to distil into.

    The last block computes only the masked positions, and only these are projected onto
    the vocabulary.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone`.
        preprocessor: `MaskedLMPreprocessor`, or `None` for batches that are
            masked already.
        decoder_positions: int or `None`. For a DeBERTa: size of the enhanced mask
            decoder's table of absolute positions. The table is added to the states
            before the last layer; this layer then runs twice, and attends to the states
            without it. Rows can't be longer than the table. Checkpoints of the original
            have such a table, and it is read with them. `transformers` leaves it out,
            and so predicts other tokens.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone and `mask_positions`, int
            `(batch, count)`, the positions to predict. Without
            `mask_positions` every position is predicted.

    Returns:
        float32 tensor of shape `(batch, count or length, vocabulary_size)`,
        logits.

    `fit()` takes the batches of `MaskedLMPreprocessor.dataset()`, which masks anew in
    each epoch; or raw strings, whose masks depend only on the text. `compile()` without
    arguments sets up the training of the backbone's family, see `recipe()`: the loss is
    `sum(weight * crossentropy) / sum(weight)`, the metrics are masked accuracy and
    perplexity.

    References: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section
    3.1; the decoder: [He et al., 2020](https://arxiv.org/abs/2006.03654), section 3.2,
    and its released code.

    Example:

    ```python
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    model = keras_bertfam.tasks.MaskedLM(backbone)
    logits = model({
        "token_ids": keras.ops.array([[101, 103, 102]]),
        "mask_positions": keras.ops.array([[1]]),
    })  # (1, 1, 30522)
    ```
    """

    preprocessor_cls = MaskedLMPreprocessor
    label_kind = "token"
    extra_inputs = ("mask_positions",)
    reads_labels = True
    fixed_arguments = ("decoder_positions",)

    def __init__(
        self,
        backbone: Model,
        preprocessor: MaskedLMPreprocessor | None = None,
        decoder_positions: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, **kwargs)
        self.decoder_positions = decoder_positions
        self.position_queries = None
        if decoder_positions is not None:
            self.position_queries = position_queries(backbone, decoder_positions)
        self.head = masked_lm_head(backbone)
        self.built = True
        self.compile_by_default()

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = dict(inputs)
        positions = inputs.pop("mask_positions", None)
        labels = inputs.pop(LABELS, None)
        more = {}
        if self.position_queries is not None:
            more["added_queries"] = added_queries(
                self.position_queries, inputs, positions
            )
        outputs = self.backbone(
            inputs, positions=positions, return_pooled=False, training=training, **more
        )
        return self.predict_tokens(self.head, outputs["sequence_output"], labels=labels)

    def get_config(self) -> Config:
        config = super().get_config()
        if self.decoder_positions is not None:
            config["decoder_positions"] = self.decoder_positions
        return config

    @classmethod
    def from_teacher(
        cls,
        teacher: "MaskedLM",
        layers: Sequence[int] | None = None,
        copy_transform: bool = False,
        **kwargs: Any,
    ) -> "MaskedLM":
        """Build a student that begins with parts of a teacher, as DistilBERT does.

        Backbone and embedding table are made as by `DistilBertBackbone.from_teacher`.
        The vocabulary head's bias is the teacher's. The head's dense layer and norm are
        new, as in the released code, unless `copy_transform` is true.

        Args:
            teacher: `MaskedLM`.
            layers: sequence of ints, the teacher's layers to copy; see `teacher_layers`
                for the default.
            copy_transform: bool. Whether the head's dense layer and norm are copied.
            **kwargs: arguments of the backbone to override, such as `dropout`.

        Returns:
            A `MaskedLM` with the teacher's preprocessor.

        Raises:
            ValueError: for a layer that the teacher doesn't have.

        Example:

        ```python
        teacher = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
        student = keras_bertfam.tasks.MaskedLM.from_teacher(teacher)
        ```

        Reference: [Sanh et al., 2019](https://arxiv.org/abs/1910.01108), section 2,
        and its released code, extract_distilbert.py.
        """
        backbone = DistilBertBackbone.from_teacher(teacher.backbone, layers, **kwargs)
        count = teacher.decoder_positions
        student = cls(backbone, teacher.preprocessor, decoder_positions=count)
        theirs, ours = [], []
        if teacher.head.bias is not None:  # not every family has one
            theirs, ours = [teacher.head.bias], [student.head.bias]
        if teacher.position_queries is not None and student.position_queries:
            theirs.append(teacher.position_queries.table)
            ours.append(student.position_queries.table)
        if copy_transform:
            if not hasattr(teacher.head, "dense"):
                raise ValueError(
                    "`copy_transform` must be `False` for a teacher whose head has no "
                    f"dense layer. Received: a {type(teacher.backbone).__name__}."
                )
            for head, variables in ((teacher.head, theirs), (student.head, ours)):
                variables += [*head.dense.weights, *head.norm.weights]
        for source, target in zip(theirs, ours, strict=True):
            target.assign(keras.ops.copy(source))  # JAX would share the buffer
        return student

    def default_loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return token_metrics()


def added_queries(
    queries: PositionQueries, inputs: dict[str, Tensor], positions: Tensor | None
) -> Tensor:
    """Give the vectors of the positions to predict, or of all positions of a row.

    Args:
        queries: `PositionQueries`.
        inputs: dict of tensors, those of the backbone.
        positions: int tensor `(batch, count)`, or `None` for all.

    Returns:
        Float tensor `(batch or 1, count or length, hidden_dim)`.

    Raises:
        ValueError: for rows with more tokens than positions.
    """
    length = inputs["token_ids"].shape[1]
    if length is not None and length > queries.max_positions:
        raise ValueError(
            f"`token_ids` must have at most decoder_positions="
            f"{queries.max_positions} tokens. Received: {length}."
        )
    ids = inputs.get("position_ids")
    if ids is None and inputs.get("sequence_ids") is not None:
        ids = restarted_positions(inputs["sequence_ids"])
    if ids is None and positions is not None:
        return queries(ops.cast(positions, "int32"))
    if ids is None:
        count = ops.shape(inputs["token_ids"])[1]
        return queries(ops.arange(count, dtype="int32")[None])
    if positions is not None:
        positions = ops.cast(positions, "int32")
        ids = ops.take_along_axis(ops.cast(ids, "int32"), positions, axis=1)
    return queries(ids)


def position_queries(backbone: Model, count: int) -> PositionQueries:
    """Make the table of an enhanced mask decoder, with `count` positions.

    Raises:
        ValueError: for a backbone that can't have one.
    """
    if getattr(backbone, "disentangled", None) is None:
        raise ValueError(
            "`decoder_positions` must be `None` unless the backbone's attention is "
            f"disentangled, as DeBERTa's. Received: decoder_positions={count}, "
            f"{type(backbone).__name__}."
        )
    if backbone.max_sequence_length is not None:
        raise ValueError(
            "`decoder_positions` must be `None` if the backbone's tokens have vectors "
            "of positions: files have one table for both. Received: "
            f"decoder_positions={count}, with a backbone of "
            f"max_sequence_length={backbone.max_sequence_length}."
        )
    layer = PositionQueries(
        count,
        backbone.hidden_dim,
        backbone.make_initializer(table=True),
        dtype=backbone.dtype_policy,
        name="position_queries",
    )
    layer.build((None, None))
    return layer


def check_encoder(backbone: Model) -> None:
    """Raise a `ValueError` unless a backbone's tokens see the whole row."""
    ours = isinstance(backbone, EncoderBackbone)
    if not ours or backbone.causal:
        causal = " with causal=True" if ours else ""
        raise ValueError(
            "`backbone` must be an `EncoderBackbone` that isn't causal, so that its "
            f"tokens see the whole row. Received: {type(backbone).__name__}{causal}."
        )
