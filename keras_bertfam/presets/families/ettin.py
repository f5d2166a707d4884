"""The record of Ettin's encoders: ModernBERT's architecture at six sizes."""

import dataclasses

from keras_bertfam.presets.families.modernbert import MODERNBERT
from keras_bertfam.presets.families.parts.recipes import PretrainingRecipe
from keras_bertfam.presets.families.parts.record import PublishedSize, size

_SIZES = {
    "17m": (7, 256, 384),
    "32m": (10, 384, 576),
    "68m": (19, 512, 768),
    "150m": (22, 768, 1152),
    "400m": (28, 1024, 2624),
    "1b": (28, 1792, 3840),
}


def sizes(kind: str) -> dict[str, PublishedSize]:
    """Give the sizes of `"encoder"` or `"decoder"`, which are the same."""
    return {
        f"ettin_{kind}_{name}_en": size(
            50368,
            layers,
            width,
            intermediate_dim=inner,
            source=f"jhu-clsp/ettin-{kind}-{name}",
            tokenizer="tokenizer_json",
        )
        for name, (layers, width, inner) in _SIZES.items()
    }


def pretraining(kind: str) -> dict[str, PretrainingRecipe]:
    """Give the recipes of `"encoder"` or `"decoder"`, by the names of their sizes."""
    # By size: rate, weight decay, and steps of warm-up.
    runs = {
        "17m": (3e-3, 3e-4, 850),
        "32m": (3e-3, 3e-4, 850),
        "68m": (3e-3, 3e-4, 640),
        "150m": (8e-4, 1e-5, 640),
        "400m": (5e-4, 1e-5, 420),
        "1b": (5e-4, 5e-5, 420),
    }
    found = {
        f"ettin_{kind}_{name}_en": _recipe(kind, *run, shorter=name == "1b")
        for name, run in runs.items()
    }
    return {"": found[f"ettin_{kind}_150m_en"], **found}


def _recipe(kind, rate, weight_decay, warmup_steps, shorter):
    """Give the recipe of a size, and of the two phases of longer rows after it.

    The phases have 1.7 T, 250 B and 50 B tokens; the last two have a third of that with
    `shorter`. The numbers of steps are for full rows. In the last two phases the rate
    falls from the first step to the last. The published `weight_decay` is an update's
    at the peak rate. The optimizer bounds updates, so gradients aren't clipped.
    """
    masked = kind == "encoder"
    steps, last_steps = (2_260, 450) if shorter else (6_800, 1_360)
    tokens, last_tokens = (83, 17) if shorter else (250, 50)
    paper = "Weller et al., 2025; JHU-CLSP/ettin-encoder-vs-decoder, pretraining"
    longer = PretrainingRecipe(
        task="MaskedLM" if masked else "CausalLM",
        source=f"{paper}: {tokens} B tokens",
        learning_rate=rate,
        warmup_steps=0,
        total_steps=steps,
        batch_size=4608,
        sequence_length=7999,
        optimizer="stable_adamw",
        schedule_form="stable",
        decay_steps=steps,
        end_share=0.5,
        weight_decay=weight_decay / rate,
        beta_2=0.98,
        global_clipnorm=None,
        masking={"mask_selection_rate": 0.3} if masked else {},
        backbone_arguments={"rotary_base": (160_000.0, 160_000.0)},
    )
    decay = dataclasses.replace(
        longer,
        source=f"{paper}: {last_tokens} B tokens",
        learning_rate=rate / 2,
        weight_decay=weight_decay / (rate / 2),
        total_steps=last_steps,
        decay_steps=last_steps,
        end_share=0.04,
        masking={"mask_selection_rate": 0.15} if masked else {},
    )
    return dataclasses.replace(
        longer,
        source=f"{paper}: 1.7 T tokens",
        warmup_steps=warmup_steps,
        total_steps=360_000,
        sequence_length=1024,
        decay_steps=0,
        end_share=0.0,
        backbone_arguments={"rotary_base": (10_000.0, 10_000.0)},
        phases=(longer, decay),
    )


ETTIN = MODERNBERT.derived(
    "ettin",
    "EttinBackbone",
    license="MIT",
    arguments={**MODERNBERT.arguments, "rotary_base": (160_000.0, 160_000.0)},
    sizes=sizes("encoder"),
    pretraining=pretraining("encoder"),
    reads=("modernbert",),
)
