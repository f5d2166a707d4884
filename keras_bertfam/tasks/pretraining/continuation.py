"""Texts that a language model goes on with."""

from typing import Any

from keras_bertfam.tasks.pretraining.generation import Generation
from keras_bertfam.tasks.pretraining.generation_inputs import (
    as_texts,
    stop_ids,
    token_rows,
)


class Continuation(Generation):
    """Mixin of language models that go on with texts, by their backbone's cache."""

    def generate(
        self,
        inputs: Any,
        max_length: int,
        sampler: Any = "greedy",
        stop_token_ids: Any = "auto",
    ) -> Any:
        """Goes on with texts.

        What is known of tokens that were read is kept, and the loop over the tokens is
        compiled, anew for each `max_length`, number of texts and sampler.

        Args:
            inputs: a string, a list of strings, or ids: lists or an array, or a dict
                of the arrays `token_ids` and `padding_mask`. Lengths may differ.
            max_length: int. Tokens of a text, the prompt's included.
            sampler: `"greedy"`, `"top_k"`, `"top_p"`, `"random"`, `"beam"`,
                `"contrastive"`, or one of `keras_hub.samplers`, with a `seed` for
                texts that are the same again.
            stop_token_ids: sequence of ids that end a text, or `None`. `"auto"` is the
                end token of the preprocessor's tokenizer, and none without one.

        Returns:
            What `inputs` were with what follows: a string, a list of strings, or a list
            of lists of ids, which end with a stop token or are `max_length` long.

        Raises:
            ValueError: for an empty prompt, one that leaves no token to write, a
                `max_length` beyond the positions, strings without a preprocessor, or
                a backbone without `empty_cache`.

        Example:

        ```python
        backbone = keras_bertfam.models.GPT2Backbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
            intermediate_dim=32)
        model = keras_bertfam.tasks.CausalLM(backbone)
        model.generate([[5, 6, 7], [8]], max_length=6)
        ```
        """
        rows, strings = token_rows(self, inputs)
        stop = stop_ids(self, stop_token_ids)
        rows = self._generate(rows, {}, max_length, sampler, stop)
        if not strings:
            return rows
        texts = as_texts(self, rows, stop)
        return texts[0] if isinstance(inputs, str) else texts

    def _decoder(self, inputs):
        if not hasattr(self.backbone, "empty_cache"):
            raise ValueError(
                "`backbone` must be a `DecoderBackbone`, or Transformer-XL's, to write "
                f"texts. Received: {type(self.backbone).__name__}."
            )
        return self.backbone

    def _context(self, inputs):
        return {}
