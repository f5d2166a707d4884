"""Texts that a language model goes on with."""

from collections.abc import Mapping
from typing import Any

from keras_bertfam.tasks.pretraining.generation import Generation
from keras_bertfam.tasks.pretraining.generation_inputs import (
    as_answer,
    as_prompts,
    stop_ids,
    token_rows,
)
from keras_bertfam.tasks.pretraining.generation_settings import GenerationSettings


class Continuation(Generation):
    """Mixin of language models that go on with texts, by their backbone's cache."""

    def generate(
        self,
        inputs: Any,
        max_length: int | None = None,
        sampler: Any = None,
        stop_token_ids: Any = "auto",
        settings: GenerationSettings | Mapping[str, Any] | None = None,
    ) -> Any:
        """Goes on with texts.

        What is known of tokens that were read is kept, and the loop over the tokens is
        compiled, anew for each `max_length`, number of texts, sampler and settings.
        What becomes of a prompt doesn't depend on the others, but for random numbers.

        Args:
            inputs: a string, a list of strings, also as bytes or a tensor, or ids:
                lists or an array, or a dict of the arrays `token_ids` and
                `padding_mask`. Lengths may differ.
            max_length: int. Tokens of a text, the prompt's included; by default as
                the task's `generation` says.
            sampler: by default as the task's `generation` says, or `"greedy"`;
                `"greedy"`, `"top_k"`, `"top_p"`, `"random"`, `"beam"`,
                `"contrastive"`, or one of `keras_hub.samplers`, with a `seed` for
                texts that are the same again. A beam search is that of `transformers`.
            stop_token_ids: sequence of ids that end a text, a sequence of them for
                each text, or `None`. `"auto"` is what the task's `generation` says, or
                the end token of the preprocessor's tokenizer, and none without one.
            settings: `GenerationSettings`, what texts may be and how many are given; or
                a dict of its arguments, in place of those of the task's `generation`;
                `None` for these.

        Returns:
            What `inputs` were with what follows: a string, a list of strings, or a list
            of lists of ids, which end with a stop token or are `max_length` long. If
            the settings say so, it is a list of these for each text, and a tuple of
            that and the scores.

        Raises:
            ValueError: for an empty prompt, one that leaves no token to write, a
                `max_length` beyond the positions or the settings' `max_tokens`,
                strings without a preprocessor, settings that the sampler can't
                follow, or a backbone without `empty_cache`.

        Example:

        ```python
        backbone = keras_bertfam.models.GPT2Backbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
            intermediate_dim=32)
        model = keras_bertfam.tasks.CausalLM(backbone)
        model.generate([[5, 6, 7], [8]], max_length=6)
        ```
        """
        self._decoder({})  # raises an error before anything is compiled
        inputs = as_prompts(inputs)
        rows, strings = token_rows(self, inputs)
        stop = stop_ids(self, stop_token_ids)
        found, chosen = self._generate_as_usual(
            rows, {}, max_length, sampler, stop, settings
        )
        single = isinstance(inputs, str)
        return as_answer(self, found, stop, chosen, single, strings)

    def _decoder(self, inputs):
        if not hasattr(self.backbone, "empty_cache"):
            raise ValueError(
                "`backbone` must be an `EncoderBackbone` with causal=True, such as "
                "GPT-2's, or Transformer-XL's, to write texts. Received: "
                f"{type(self.backbone).__name__}."
            )
        return self.backbone

    def _context(self, inputs):
        return {}
