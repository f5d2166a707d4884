"""Where a task keeps the heads that `transformers` has as well."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Counterpart:
    """The class of `transformers` that a task is.

    Attributes:
        ending: str. How its name ends, after the family's.
        heads: dict from roles, keys of `Family.heads`, to attributes of the task.
        poolers: attributes of the task that may hold a pooler, if the backbone
            has none.
    """

    ending: str
    heads: dict = dataclasses.field(default_factory=dict)
    poolers: tuple = ()


BACKBONE = Counterpart("Model")
COUNTERPARTS = {
    "MaskedLM": Counterpart("ForMaskedLM", {"masked_lm": "head"}),
    "MaskedLMSentencePair": Counterpart(
        "ForPreTraining",
        {"masked_lm": "masked_lm_head", "sentence": "sentence_head"},
        poolers=("new_pooler",),
    ),
    "PermutationLM": Counterpart("LMHeadModel", {"masked_lm": "head"}),
    "ReplacedTokenDetection": Counterpart("ForPreTraining", {"detector": "head"}),
}


def counterpart(cls):
    """The `Counterpart` of a class of ours, or `None`."""
    names = (base.__name__ for base in cls.__mro__)
    return next((COUNTERPARTS[name] for name in names if name in COUNTERPARTS), None)
