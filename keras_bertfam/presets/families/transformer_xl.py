"""Transformer-XL's record."""

from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import (
    Family,
    HeadStyle,
    Layout,
    PublishedSize,
)


def _recipe(length: int, batch_size: int, total_steps: int) -> PretrainingRecipe:
    return PretrainingRecipe(
        task="RecurrentLM",
        source="Dai et al., 2019, section 4.1; kimiyoung/transformer-xl, scripts",
        learning_rate=2.5e-4,
        warmup_steps=0,
        total_steps=total_steps,
        batch_size=batch_size,
        sequence_length=length,
        schedule_form="cosine",
        weight_decay=0.0,
        epsilon=1e-8,
        global_clipnorm=0.25,
        rows="parallel_streams",
        task_arguments={"memory_length": length},
    )


_SIZES = {
    "transformer_xl_base_en_wikitext103": PublishedSize(
        {
            "vocabulary_size": 267_735,
            "num_layers": 16,
            "num_heads": 10,
            "hidden_dim": 410,
            "intermediate_dim": 2100,
            "cutoffs": [20_000, 40_000, 200_000],
        }
    ),
    "transformer_xl_base_enwik8": PublishedSize(
        {
            "vocabulary_size": 204,
            "num_layers": 12,
            "num_heads": 8,
            "hidden_dim": 512,
            "intermediate_dim": 2048,
        }
    ),
}

TRANSFORMER_XL = Family(
    name="transfo-xl",
    backbone="TransformerXLBackbone",
    license="Apache-2.0",
    tokenizer="words",
    tokenizer_class="",
    layout=Layout("transfo-xl", start_token="<eos>"),
    head_style=HeadStyle("transfo-xl", activation=None, token="end"),
    sizes=_SIZES,
    pretraining={
        "": _recipe(150, 60, 200_000),
        "transformer_xl_base_enwik8": _recipe(512, 22, 400_000),
    },
    fine_tuning={"": FineTuningRecipe(source="of BERT: Devlin et al., 2018, A.3")},
)
