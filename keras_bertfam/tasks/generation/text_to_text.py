"""Model text to text: T5's and BART's objectives, translation, summaries."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.models.encoder_decoder import EncoderDecoderBackbone, side_of
from keras_bertfam.tasks.generation.language_model import LanguageModel
from keras_bertfam.tasks.generation.prompts import (
    as_answer,
    as_prompts,
    check_rows,
    checked_start,
    padded_width,
    stop_ids,
    token_rows,
)
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.tasks.generation.text_to_text_preprocessor import (
    TextToTextPreprocessor,
)
from keras_bertfam.tasks.generation.writing import (
    TextWriter,
    logits_by,
    write_by_default,
)
from keras_bertfam.tasks.task import LABELS
from keras_bertfam.types import Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class TextToText(LanguageModel):
    """Predicts each token of a text from another text and the tokens before it.

    Call `fit()` to train, and `generate()` to write texts.

    Args:
        backbone: `keras_bertfam.models.EncoderDecoderBackbone`.
        preprocessor: `DenoisingPreprocessor` to pre-train, `TextToTextPreprocessor`
            for pairs of texts, or `None` for batches that are made already.
        z_loss: float or `None`, see `LanguageModelCrossentropy`; `None` for that of the
            backbone's recipe, T5's 1e-4.
        label_smoothing: float, see `LanguageModelCrossentropy`.
        generation: dict or `None`, see `LanguageModel`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, those of the backbone: `encoder_token_ids`,
            `encoder_padding_mask`, `decoder_token_ids`, `decoder_padding_mask` and, in
            packed rows, `encoder_sequence_ids` and `decoder_sequence_ids`.

    Returns:
        float32 tensor of shape `(batch, decoder_length, vocabulary_size)`: at each
        position of the decoder, the logits of the next token.

    `fit()` takes dicts of these inputs; targets of the shape of `decoder_token_ids`,
    the next tokens; and weights, which are 0 where there is no target. `compile()`
    without arguments sets up the training of the backbone's family, see `recipe()`.

    References: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 2;
    [Lewis et al., 2019](https://arxiv.org/abs/1910.13461), section 2.

    Example:

    ```python
    backbone = keras_bertfam.models.T5Backbone.from_preset(
        "t5_small_multi", load_weights=False)
    model = keras_bertfam.tasks.TextToText(backbone)
    model({
        "encoder_token_ids": keras.ops.array([[37, 1712, 19, 1]]),
        "decoder_token_ids": keras.ops.array([[0, 644]]),
    }).shape  # (1, 2, 32128)
    ```
    """

    backbone_cls = EncoderDecoderBackbone
    preprocessor_cls = TextToTextPreprocessor

    def __init__(self, backbone: Model, *args: Any, **kwargs: Any) -> None:
        if not isinstance(backbone, EncoderDecoderBackbone):
            raise ValueError(
                "`backbone` must be an `EncoderDecoderBackbone`, such as `T5Backbone`. "
                f"Received: {type(backbone).__name__}."
            )
        super().__init__(backbone, *args, **kwargs)

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = dict(inputs)
        labels = inputs.pop(LABELS, None)
        outputs = self.backbone(inputs, training=training)
        return self.predict_tokens(
            self.head, outputs["decoder_sequence_output"], labels=labels
        )

    @checked
    def generate(
        self,
        inputs: Any,
        max_length: int | None = None,
        sampler: Any = None,
        stop_token_ids: Any = "auto",
        start_token_ids: Sequence[int] | None = None,
        settings: GenerationSettings | Mapping[str, Any] | None = None,
    ) -> Any:
        """Write a text for each input.

        Caching and compilation work as in `CausalLM.generate`.

        Args:
            inputs: a string, a list of strings, also as bytes or a tensor, or ids:
                lists or an array, or a dict of the arrays `token_ids` and
                `padding_mask`. Strings get the start and end tokens of the tokenizer,
                if it has them, and mask tokens in them stay single tokens. Ids are used
                unchanged.
            max_length: int. The most tokens of a text, those it begins with included.
                Defaults to the value of the task's `generation`.
            sampler: name or one of `keras_hub.samplers`. Defaults to the task's
                `generation`, or else to `"greedy"`.
            stop_token_ids: an id that ends a text, a sequence of such ids, one of them
                for each text, or `None`. `"auto"` takes those of the task's
                `generation`, or else the end token of the preprocessor's tokenizer, if
                there is one.
            start_token_ids: ids that each text begins with. `None` takes the first of
                these that exist: those of the task's `generation`, the preprocessor's
                `decoder_start_token_id`, or the family's (T5: 0, BART: 2).
            settings: `GenerationSettings`: rules for texts, and how many are returned.
                Or a dict of some of its arguments, which replace those of the task's
                `generation`. `None` keeps those of `generation`.

        Returns:
            A string, a list of strings, or a list of lists of ids, without the tokens
            that texts begin with. Ids end with a stop token or have the maximal length.
            If the settings ask for several texts, there is a list of them for each
            input; if they ask for scores, the result is a tuple of texts and scores.

        Raises:
            ValueError: for an empty text, a text with more tokens than positions, a
                `max_length` that leaves no token to write or is beyond the positions or
                the settings' `max_tokens`, settings that the sampler can't follow, or
                strings without a preprocessor.

        Example:

        ```python
        backbone = keras_bertfam.models.T5Backbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
            intermediate_dim=32)
        model = keras_bertfam.tasks.TextToText(backbone)
        model.generate([[5, 6, 7, 1], [8, 1]], max_length=6, stop_token_ids=[1])
        ```
        """
        inputs = as_prompts(inputs)
        sources, strings = token_rows(self, inputs, specials=True)
        positions = self.backbone.max_sequence_length
        check_rows(sources, self.backbone.vocabulary_size, positions)
        start = checked_start(self, start_token_ids)
        width = padded_width(max(map(len, sources)), positions)
        token_ids = np.zeros((len(sources), width), "int32")
        mask = np.zeros(token_ids.shape, bool)
        for number, source in enumerate(sources):
            token_ids[number, : len(source)] = source
            mask[number, : len(source)] = True
        batch = {"encoder_token_ids": token_ids, "encoder_padding_mask": mask}
        stop = stop_ids(self, stop_token_ids)
        rows = [start] * len(sources)
        found, chosen = write_by_default(
            self, rows, batch, max_length, sampler, stop, settings
        )
        single = isinstance(inputs, str)
        return as_answer(
            self, found, stop, chosen, single, strings, len(start), specials=True
        )

    def text_writer(self, inputs: dict[str, Tensor]) -> TextWriter:
        """Make the `TextWriter`: the decoder, which attends to the encoder's states.

        Args:
            inputs: dict of tensors, those of the encoder.
        """
        states = self.backbone.encoder(side_of(inputs, "encoder"))["sequence_output"]
        context = {
            "context": self.backbone.decoder.project_context(states),
            "cross_mask": inputs["encoder_padding_mask"],
        }
        return TextWriter(self.backbone.decoder, context, logits_by(self.head))
