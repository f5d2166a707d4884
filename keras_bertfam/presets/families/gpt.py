"""GPT's record."""

from keras_bertfam.presets.families.parts.decoder_weights import (
    decoder_config,
    decoder_weights,
)
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.families.parts.record import Family, HeadStyle, Layout, size
from keras_bertfam.presets.families.parts.tables import TransformersTable
from keras_bertfam.presets.families.parts.transformers_weights import DECODER_ARGUMENTS

# The paper has 2,000 updates of warm-up and a cosine over 100 epochs, but not their
# number of updates. So the share of the warm-up is that of its fine-tuning.
PRETRAINING = PretrainingRecipe(
    task="CausalLM",
    source="Radford et al., 2018, section 4.1",
    learning_rate=2.5e-4,
    warmup_steps=0.002,
    total_steps=None,
    batch_size=64,
    optimizer="adamw",
    schedule_form="cosine",
    epsilon=1e-8,
    global_clipnorm=None,
)

FINE_TUNING = FineTuningRecipe(
    (6.25e-5,),
    (32,),
    (3,),
    warmup_steps=0.002,
    lm_weight=0.5,
    source="Radford et al., 2018, section 4.1; openai/finetune-transformer-lm",
)

# _start_ A _delimiter_ B _classify_
GPT_LAYOUT = Layout(
    "gpt",
    start_token="_start_",
    new_tokens=("_start_", "_delimiter_", "_classify_"),
)

GPT = Family(
    name="openai-gpt",
    backbone="GPTBackbone",
    license="MIT",
    tokenizer="byte_pair",
    tokenizer_class="GPTTokenizer",
    layout=GPT_LAYOUT,
    head_style=HeadStyle("gpt", activation=None, token="end"),
    arguments={
        "causal": True,
        "embedding_norm": False,
        "activation": "gelu_tanh",
        "layer_norm_epsilon": 1e-5,
        "truncated_initializer": False,
    },
    sizes={
        "gpt_base_en": size(40478, 12, 768, source="openai-community/openai-gpt"),
    },
    pretraining={"": PRETRAINING},
    fine_tuning={"": FINE_TUNING},
    transformers=TransformersTable(
        title="OpenAIGPT",
        prefix="transformer",
        config=decoder_config("afn", "gelu", 512),
        weights=decoder_weights("tokens_embed", "positions_embed"),
        heads={"causal_lm": ()},
        fixed={**DECODER_ARGUMENTS, "intermediate_dim": None},
        output="lm_head.weight",
        copies={"lm_head.weight": "tokens_embed.weight"},
        constants=(r"h\.\d+\.attn\.bias", "position_ids"),
        signs=("n_embd", "afn"),
    ),
)
