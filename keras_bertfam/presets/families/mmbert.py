"""mmBERT's record: ModernBERT's architecture, with Gemma 2's vocabulary."""

import dataclasses

from keras_bertfam.presets.families.modernbert import MODERNBERT
from keras_bertfam.presets.families.parts.recipes import PretrainingRecipe
from keras_bertfam.presets.families.parts.record import Layout, PublishedSize, size

_WIDTHS = {"small": 384, "base": 768}


def _size(name: str) -> PublishedSize:
    return size(
        256_000,
        22,
        _WIDTHS[name],
        intermediate_dim=1152,
        source=f"jhu-clsp/mmBERT-{name}",
        tokenizer="tokenizer_json",
    )


def _recipe(name: str) -> PretrainingRecipe:
    """Give the recipe of a size, with the two phases of longer rows after it.

    The phases have 2.3 T, 600 B and 100 B tokens. The numbers of steps are for full
    rows. In the last phase the rate falls from the first step to the last, and falls
    linearly for the small size. The published weight decay is an update's at the peak
    rate, a tenth of the rate. The optimizer bounds updates, so gradients aren't
    clipped.
    """
    small = name == "small"
    paper = f"Marone et al., 2025; JHU-CLSP/mmBERT, configs/mmBERT-{name}"
    longer = PretrainingRecipe(
        task="MaskedLM",
        source=f"{paper}-ext: 600 B tokens of 110 languages",
        learning_rate=4e-4 if small else 8e-4,
        warmup_steps=0,
        total_steps=15_900,
        batch_size=4608,
        sequence_length=8192,
        optimizer="stable_adamw",
        schedule_form="stable",
        weight_decay=0.1,
        beta_2=0.95,
        global_clipnorm=None,
        epsilon=1e-8,
        masking={"mask_selection_rate": 0.15},
        mix_exponent=0.5,
        backbone_arguments={"rotary_base": (160_000.0, 160_000.0)},
    )
    decay = dataclasses.replace(
        longer,
        source=f"{paper}-decay: 100 B tokens of 1,833 languages",
        total_steps=2_650,
        schedule_form="join" if small else "stable",
        decay_steps=0 if small else 2_650,
        end_share=0.04 if small else 0.02,
        masking={"mask_selection_rate": 0.05},
        mix_exponent=0.3,
    )
    return dataclasses.replace(
        longer,
        source=f"{paper}: 2.3 T tokens of 60 languages",
        learning_rate=8e-4,
        warmup_steps=850 if small else 640,
        total_steps=487_000,
        sequence_length=1024,
        masking={"mask_selection_rate": 0.3},
        mix_exponent=0.7,
        backbone_arguments={"rotary_base": (10_000.0, 10_000.0)},
        phases=(longer, decay),
    )


MMBERT = MODERNBERT.derived(
    "mmbert",
    "MmBertBackbone",
    license="MIT",
    tokenizer_class="GemmaTokenizer",
    layout=Layout("mmbert", start_token="<bos>"),
    arguments={**MODERNBERT.arguments, "rotary_base": (160_000.0, 160_000.0)},
    sizes={f"mmbert_{name}_multi": _size(name) for name in _WIDTHS},
    pretraining={
        "": _recipe("base"),
        **{f"mmbert_{name}_multi": _recipe(name) for name in _WIDTHS},
    },
    reads=("modernbert",),
)
