"""Model language from left to right."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.models.families.distilbert import student_of
from keras_bertfam.tasks.generation.causal_lm_preprocessor import (
    CausalLMPreprocessor,
)
from keras_bertfam.tasks.generation.language_model import LanguageModel
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.tasks.generation.writing import (
    TextWriter,
    checked_decoder,
    continue_texts,
    logits_by,
)
from keras_bertfam.tasks.task import LABELS
from keras_bertfam.types import Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class CausalLM(LanguageModel):
    """Predicts each token from those before it, with any causal backbone.

    Call `fit()` to train, `generate()` to write texts, and `from_teacher()` for a
    smaller model to distil into.

    Causal backbones are GPT's, and every encoder made with `causal=True`. A causal BERT
    is the left-to-right model of its paper's ablation.

    Args:
        backbone: a `keras_bertfam.models.DecoderBackbone`, or `EncoderBackbone` with
            `causal=True`.
        preprocessor: `CausalLMPreprocessor`, or `None` for batches that are made
            already.
        z_loss: float or `None`, see `LanguageModelCrossentropy`; `None` for that of the
            backbone's recipe.
        label_smoothing: float, see `LanguageModelCrossentropy`.
        generation: dict or `None`, see `LanguageModel`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, those of the backbone: `token_ids`, and optionally
            `padding_mask`, `position_ids`, `sequence_ids` and `prefix_mask`.

    Returns:
        float32 tensor of shape `(batch, length, vocabulary_size)`: at each position,
        the logits of the next token.

    `fit()` takes dicts of these inputs; targets of the shape of `token_ids`, the next
    tokens; and weights, which are 0 where there is no target, such as in a prefix.
    `compile()` without arguments sets up the training of the backbone's family, see
    `recipe()`.

    Raises:
        ValueError: for a backbone that isn't causal: its tokens would see those that
            they predict.

    References: Radford et al., 2018, section 3.1; ablation:
    [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 5.1.

    Example:

    ```python
    backbone = keras_bertfam.models.GPT2Backbone.from_preset(
        "gpt2_base_en", load_weights=False)
    model = keras_bertfam.tasks.CausalLM(backbone)
    model({"token_ids": keras.ops.array([[464, 3290, 318]])}).shape  # (1, 3, 50257)
    ```
    """

    preprocessor_cls = CausalLMPreprocessor

    def __init__(
        self,
        backbone: Model,
        preprocessor: CausalLMPreprocessor | None = None,
        z_loss: float | None = None,
        label_smoothing: float = 0.0,
        generation: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not getattr(backbone, "causal", False):
            raise ValueError(
                "`backbone` must be causal: otherwise tokens see those that they "
                f"predict. Expected: causal=True. Received: {type(backbone).__name__} "
                "with causal=False."
            )
        arguments = (z_loss, label_smoothing, generation)
        super().__init__(backbone, preprocessor, *arguments, **kwargs)

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = dict(inputs)
        labels = inputs.pop(LABELS, None)
        outputs = self.backbone(inputs, return_pooled=False, training=training)
        return self.predict_tokens(self.head, outputs["sequence_output"], labels=labels)

    @checked
    def generate(
        self,
        inputs: Any,
        max_length: int | None = None,
        sampler: Any = None,
        stop_token_ids: Any = "auto",
        settings: GenerationSettings | Mapping[str, Any] | None = None,
    ) -> Any:
        """Continue texts.

        Strings get the tokenizer's start token, as prompts do in training, unless it
        ends texts, too, as GPT-2's does; ids are read as they are.

        Keys and values of tokens that were read are kept. The loop over the tokens is
        compiled, anew for each `max_length`, number of texts, sampler and settings. A
        prompt's text doesn't depend on the other prompts, except through random
        numbers.

        Args:
            inputs: a string, a list of strings, also as bytes or a tensor, or ids:
                lists or an array, or a dict of the arrays `token_ids` and
                `padding_mask`. Lengths may differ.
            max_length: int. The most tokens of a text, its prompt included. Defaults to
                the value of the task's `generation`.
            sampler: `"greedy"`, `"top_k"`, `"top_p"`, `"random"`, `"beam"`,
                `"contrastive"`, or one of `keras_hub.samplers`, with a `seed` for
                reproducible texts. Defaults to the task's `generation`, or else to
                `"greedy"`. A beam search works as in `transformers`.
            stop_token_ids: an id that ends a text, a sequence of such ids, one of them
                for each text, or `None`. `"auto"` takes those of the task's
                `generation`, or else the end token of the preprocessor's tokenizer, if
                there is one.
            settings: `GenerationSettings`: rules for texts, and how many are returned.
                Or a dict of some of its arguments, which replace those of the task's
                `generation`. `None` keeps those of `generation`.

        Returns:
            The inputs with their continuations: a string, a list of strings, or a list
            of lists of ids. Ids end with a stop token or are `max_length` long. If the
            settings ask for several texts, there is a list of them for each input; if
            they ask for scores, the result is a tuple of texts and scores.

        Raises:
            ValueError: for a prompt without tokens, a prompt that leaves no room, a
                `max_length` beyond the positions or the settings' `max_tokens`, strings
                without a preprocessor, settings that the sampler can't follow, or a
                backbone without `empty_cache`.

        Example:

        ```python
        backbone = keras_bertfam.models.GPT2Backbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
            intermediate_dim=32)
        model = keras_bertfam.tasks.CausalLM(backbone)
        model.generate([[5, 6, 7], [8]], max_length=6)
        ```
        """
        return continue_texts(
            self, inputs, max_length, sampler, stop_token_ids, settings
        )

    def text_writer(self, inputs: dict[str, Tensor]) -> TextWriter:
        """Make the `TextWriter`: the backbone itself, without context."""
        return TextWriter(checked_decoder(self.backbone), {}, logits_by(self.head))

    @classmethod
    def from_teacher(
        cls, teacher: "CausalLM", layers: Sequence[int] | None = None, **kwargs: Any
    ) -> "CausalLM":
        """Build a student that begins with layers of a teacher, as DistilGPT2 does.

        It has the teacher's embedding tables, its last norm, and the chosen layers.

        Args:
            teacher: `CausalLM`.
            layers: sequence of ints, the teacher's layers to copy; see `teacher_layers`
                for the default.
            **kwargs: arguments of the backbone to override, such as `dropout`.

        Returns:
            A `CausalLM` with a backbone of the teacher's class and its preprocessor.

        Raises:
            ValueError: for a layer that the teacher doesn't have.

        Example:

        ```python
        backbone = keras_bertfam.models.GPT2Backbone(
            vocabulary_size=100, num_layers=4, num_heads=2, hidden_dim=16,
            intermediate_dim=32)
        teacher = keras_bertfam.tasks.CausalLM(backbone)
        student = keras_bertfam.tasks.CausalLM.from_teacher(teacher)
        model = keras_bertfam.tasks.Distiller(student, teacher)
        ```

        Reference: [Sanh et al., 2019](https://arxiv.org/abs/1910.01108), released code,
        extract.py.
        """
        backbone = teacher.backbone
        student = student_of(backbone, type(backbone), layers, **kwargs)
        return cls(student, teacher.preprocessor)
