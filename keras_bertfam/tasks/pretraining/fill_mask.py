"""Filling in the mask tokens of texts."""

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.layers.data.user_inputs import as_strings
from keras_bertfam.tokenizers import pipeline_ops
from keras_bertfam.types import Mixin, Tensor


class FillMask(Mixin):
    """Mixin of tasks that predict masked tokens: `fill_mask`."""

    def masked_lm_logits(self, inputs: dict[str, Tensor]) -> Tensor:
        """Vocabulary logits at the `mask_positions` of a batch.

        Args:
            inputs: dict of arrays: those of the backbone and `mask_positions`.

        Returns:
            float32 tensor `(batch, count, vocabulary_size)`. By default the
            task's output, or that named `"masked_lm"` of several.
        """
        outputs = self(inputs, training=False)
        return outputs["masked_lm"] if isinstance(outputs, dict) else outputs

    def token_strings(self) -> list[str]:
        """Give the string of each token id, readable also for byte-level tokenizers.

        Returns:
            List of `vocabulary_size` str of the preprocessor's tokenizer.
        """
        return pipeline_ops.token_strings(self.preprocessor.tokenizer)

    def fill_mask(self, texts: str | Sequence[str], top_k: int = 5) -> list[Any]:
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
                f"`top_k` must be in [1, {tokenizer.vocabulary_size()}], the tokens "
                f"there are. Received: {top_k}."
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
        logits = logits[..., : len(strings)]  # a table may have more rows
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
