"""Language modelling from left to right."""

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

    Besides GPT's backbones these are all encoders made with `causal=True`: BERT's is
    the left-to-right model of its paper's ablation.

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
        inputs: dict of tensors, those of the backbone: `token_ids`, and if wanted
            `padding_mask`, `position_ids`, `sequence_ids` and `prefix_mask`.

    Returns:
        float32 tensor of shape `(batch, length, vocabulary_size)`, the logits of the
        token after each.

    `fit()` takes dicts of these inputs, targets of the shape of `token_ids`, which are
    the tokens after them, and weights that are 0 where there is none, as of a prefix.
    `compile()` without arguments is the training of the backbone's family, see
    `recipe()`.

    Raises:
        ValueError: for a backbone whose tokens see those that they are to predict.

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
                "`backbone` must be causal, or its tokens see those that they are to "
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
        """Go on with texts.

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
        return continue_texts(
            self, inputs, max_length, sampler, stop_token_ids, settings
        )

    def text_writer(self, inputs: dict[str, Tensor]) -> TextWriter:
        """Give what writes a text: the backbone itself, and no context."""
        return TextWriter(checked_decoder(self.backbone), {}, logits_by(self.head))

    @classmethod
    def from_teacher(
        cls, teacher: "CausalLM", layers: Sequence[int] | None = None, **kwargs: Any
    ) -> "CausalLM":
        """Build a student that begins with layers of a teacher, as DistilGPT2 does.

        It has the teacher's tables, its last norm, and the given layers.

        Args:
            teacher: `CausalLM`.
            layers: sequence of ints, the teacher's layers to take; see
                `teacher_layers` for the default.
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
