"""What runs of pre-training can be told by name: objectives, and strategies of masks.

No framework is needed to read this, so that a command can list and check names at once.
The classes are defined elsewhere; `tests/test_command_lists.py` holds both to be equal.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Objective:
    """An objective of pre-training.

    Attributes:
        task: name of its class in `keras_bertfam.tasks`.
        what: what is learned, in few words, or `""` where the name says that.
        arguments: what its preprocessor is asked for.
    """

    task: str
    what: str = ""
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _denoising(name: str) -> Objective:
    """What a `TextToText` is trained by: a denoising objective by its name."""
    return Objective("TextToText", arguments={"objective": name})


_DENOISING = (
    "bart bert_style deshuffling document_rotation iid_drop iid_replace_spans mass "
    "mass_fragment mixture prefix_lm random_spans sentence_permutation text_infilling "
    "token_deletion token_masking"
).split()
_STRATEGIES = (
    "tokens words ngrams spans given_spans knowledge salient_spans smoothed_tokens"
).split()
_CORRUPTION = "keras_bertfam.layers.corruption"


class _Objectives(Mapping[str, Objective]):
    """The package's own, and what else was defined as a `DenoisingObjective`."""

    own = {
        "mlm": Objective("MaskedLM", "masked tokens"),
        "nsp": Objective(
            "MaskedLMSentencePair", "and next segment", {"sentence_objective": "nsp"}
        ),
        "sop": Objective(
            "MaskedLMSentencePair", "and their order", {"sentence_objective": "sop"}
        ),
        "sbo": Objective("SpanBoundaryLM", "spans by their borders"),
        "rtd": Objective("ReplacedTokenDetection", "replaced tokens"),
        "plm": Objective("PermutationLM", "tokens in any order"),
        "distillation": Objective("Distiller", "a teacher's answers"),
        "clm": Objective("CausalLM", "next tokens"),
        **{name: _denoising(name) for name in _DENOISING},
    }

    def __getitem__(self, name: str) -> Objective:
        if name not in self.own and name in _defined(
            "objectives", "DenoisingObjective"
        ):
            return _denoising(name)
        return self.own[name]

    def __iter__(self) -> Iterator[str]:
        defined = _defined("objectives", "DenoisingObjective")
        return iter(dict.fromkeys([*self.own, *defined]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


OBJECTIVES = _Objectives()


def strategies() -> list[str]:
    """Names of strategies of masking: the package's own, and what else was defined."""
    defined = _defined("strategies", "MaskingStrategy")
    return [*dict.fromkeys([*_STRATEGIES, *defined])]


def _defined(module, base):
    """Classes by name of a kind, which are there if the module of their base is."""
    loaded = sys.modules.get(f"{_CORRUPTION}.{module}")
    return getattr(loaded, base).named if loaded else {}
