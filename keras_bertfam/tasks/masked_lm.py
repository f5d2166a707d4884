"""Masked language modelling."""

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_bertfam.layers.modeling.heads import MaskedLMHead
from keras_bertfam.layers.preprocessing.masked_lm_preprocessor import (
    MaskedLMPreprocessor,
)
from keras_bertfam.tasks.losses import MaskedCrossentropy, Perplexity
from keras_bertfam.tasks.task import PretrainingTask


@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedLM(PretrainingTask):
    """Predicts masked tokens with any backbone of the library.

    Only the masked positions are computed in the last block and projected onto
    the vocabulary.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone`.
        preprocessor: `MaskedLMPreprocessor`, or `None` for batches that are
            masked already.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone and `mask_positions`, int
            `(batch, count)`, the positions to predict. Without
            `mask_positions` every position is predicted.

    Returns:
        float32 tensor of shape `(batch, count or length, vocabulary_size)`,
        logits.

    `fit()` takes what `MaskedLMPreprocessor.dataset()` gives, which masks anew in
    each epoch, or raw strings, whose masks depend on the text alone.
    `compile()` without arguments is BERT's training: AdamW with linear warm-up
    and decay, `sum(weight * crossentropy) / sum(weight)`, masked accuracy and
    perplexity.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section
    3.1.

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

    def __init__(self, backbone, preprocessor=None, **kwargs):
        super().__init__(backbone, preprocessor, **kwargs)
        self.head = MaskedLMHead(
            backbone.token_embedding,
            activation=backbone.activation,
            layer_norm_epsilon=backbone.layer_norm_epsilon,
            initializer=backbone.make_initializer(),
            dtype=backbone.dtype_policy,
            name="masked_lm_head",
        )
        self.head.build((None, None, backbone.hidden_dim))
        self.built = True
        self.compile()

    def call(self, inputs, training=None):
        inputs = dict(inputs)
        positions = inputs.pop("mask_positions", None)
        outputs = self.backbone(
            inputs, positions=positions, return_pooled=False, training=training
        )
        return self.head(outputs["sequence_output"])

    def default_loss(self):
        return MaskedCrossentropy()

    def default_metrics(self):
        return [
            keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            Perplexity(),
        ]

    def unused_variables(self):
        pooler = self.backbone.pooler
        return [] if pooler is None else pooler.variables

    def token_strings(self):
        """The string of each token id, readable also for byte-level tokenizers.

        Returns:
            List of `vocabulary_size` str of the preprocessor's tokenizer.
        """
        tokenizer = self.preprocessor.tokenizer
        if isinstance(tokenizer, keras_hub.tokenizers.BytePairTokenizer):
            ids = np.arange(tokenizer.vocabulary_size())[:, None]
            return [str(token) for token in tokenizer.detokenize(ids)]
        return list(tokenizer.get_vocabulary())

    def fill_mask(self, texts, top_k=5):
        """Predict the mask tokens in texts.

        Args:
            texts: str or list of str, with the tokenizer's mask token
                (`[MASK]` for BERT, `<mask>` for RoBERTa) where a token is
                wanted.
            top_k: int. How many tokens for each mask.

        Returns:
            For each text a list with one entry for each mask: a list of
            `(token, probability)` pairs, the most probable first. For a single
            str that text's list.

        Raises:
            ValueError: if the task has no preprocessor, or a text no mask
                token.

        Example:

        ```python
        model.fill_mask("The capital of France is [MASK].", top_k=1)
        # [[("paris", 0.42)]]
        ```
        """
        if self.preprocessor is None:
            raise ValueError("`fill_mask` needs a task with a preprocessor.")
        if isinstance(texts, str):
            return self.fill_mask([texts], top_k)[0]
        tokenizer = self.preprocessor.tokenizer
        inputs = self.preprocessor.encode(texts)
        inputs = {name: np.asarray(value) for name, value in inputs.items()}
        masked = inputs["token_ids"] == tokenizer.mask_token_id
        for text, count in zip(texts, masked.sum(axis=1), strict=True):
            if count == 0:
                raise ValueError(
                    f"`texts` must contain {tokenizer.mask_token!r} within "
                    f"{inputs['token_ids'].shape[1]} tokens. Received: {text!r}"
                )
        order = np.argsort(~masked, axis=1, kind="stable")
        positions = order[:, : masked.sum(axis=1).max()].astype("int32")
        logits = self({**inputs, "mask_positions": positions}, training=False)
        values, ids = ops.top_k(ops.softmax(logits), top_k)
        values, ids = ops.convert_to_numpy(values), ops.convert_to_numpy(ids)
        strings = self.token_strings()
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
