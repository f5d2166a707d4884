"""GPT-2's record, and GPT-3's sizes."""

import dataclasses

from keras_bertfam.presets.families.gpt import GPT, PRETRAINING
from keras_bertfam.presets.families.parts.decoder_weights import (
    KERAS_HUB_WEIGHTS,
    decoder_config,
    decoder_weights,
)
from keras_bertfam.presets.families.parts.record import Layout, size
from keras_bertfam.presets.families.parts.tables import KerasHubTable, TransformersTable
from keras_bertfam.presets.families.parts.transformers_weights import DECODER_ARGUMENTS

_GPT2 = {
    name: size(50257, layers, width, source=f"openai-community/{source}")
    for name, layers, width, source in (
        ("gpt2_base_en", 12, 768, "gpt2"),
        ("gpt2_medium_en", 24, 1024, "gpt2-medium"),
        ("gpt2_large_en", 36, 1280, "gpt2-large"),
        ("gpt2_extra_large_en", 48, 1600, "gpt2-xl"),
    )
}
_GPT2["distil_gpt2_en"] = size(50257, 6, 768, source="distilbert/distilgpt2")
# Brown et al., 2020, table 2.1, as printed. "XL" has 1.5 B weights with 24 heads of
# 128; the paper says 1.3 B. Layers with sparse attention are dense here. No weights
# were published.
_GPT3 = {
    f"gpt3_{name}": size(
        50257, layers, width, heads, head_dim=head_dim, max_sequence_length=2048
    )
    for name, layers, width, heads, head_dim in (
        ("small", 12, 768, 12, 64),
        ("medium", 24, 1024, 16, 64),
        ("large", 24, 1536, 16, 96),
        ("xl", 24, 2048, 24, 128),
        ("2_7b", 32, 2560, 32, 80),
        ("6_7b", 32, 4096, 32, 128),
        ("13b", 40, 5140, 40, 128),
        ("175b", 96, 12288, 96, 128),
    )
}

GPT2 = GPT.derived(
    "gpt2",
    "GPT2Backbone",
    tokenizer_class="GPT2Tokenizer",
    layout=Layout("gpt2", start_token="<|endoftext|>"),
    arguments={**GPT.arguments, "norm_first": True, "max_sequence_length": 1024},
    sizes={**_GPT2, **_GPT3},
    pretraining={
        "": dataclasses.replace(
            PRETRAINING,
            source="Radford et al., 2019, section 2.3; else Radford et al., 2018",
            batch_size=512,
            sequence_length=1024,
        )
    },
    transformers=TransformersTable(
        title="GPT2",
        prefix="transformer",
        config=(
            *decoder_config("activation_function", "gelu_new", 1024),
            ("intermediate_dim", "n_inner", None),
        ),
        weights=decoder_weights("wte", "wpe"),
        heads={"causal_lm": ()},
        fixed={**DECODER_ARGUMENTS, "norm_first": True},
        required_config={
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "add_cross_attention": False,
        },
        output="lm_head.weight",
        copies={"lm_head.weight": "wte.weight"},
        constants=(r"h\.\d+\.attn\.(masked_)?bias",),
        signs=("n_embd", "n_ctx"),
    ),
    keras_hub=KerasHubTable(
        "GPT2Backbone",
        {
            "vocab_size": "vocabulary_size",
            "n_layer": "num_layers",
            "n_head": "num_heads",
            "n_embd": "hidden_dim",
            "n_inner": "intermediate_dim",
            "n_positions": "max_sequence_length",
            "resid_pdrop": "dropout",
            "embd_pdrop": "dropout",
            "attn_pdrop": "dropout",
        },
        {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
        KERAS_HUB_WEIGHTS,
        {"CausalLM": ()},
    ),
)
