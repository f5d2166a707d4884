"""Names of objectives, and of strategies of masking, for runs of pre-training.

They are data that needs no framework, so that a command can list and check names at
once. The classes are defined elsewhere; `tests/test_command_lists.py` checks that both
agree.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any

_PACKINGS = ("full", "doc", "best_fit")
_TRANSLATIONS = (*_PACKINGS, "translations")
_PAIRS = ("segments", "sentences", "best_fit", "best_fit_sentences")
_STREAMS = ("stream", *_PACKINGS)


@dataclasses.dataclass(frozen=True)
class Objective:
    """An objective of pre-training.

    Attributes:
        task: name of its class in `keras_bertfam.tasks`.
        what: the predicted tokens or labels, in few words; `""` if the name tells them.
        arguments: arguments of its preprocessor.
        packings: the values of `packing` that its preprocessor takes.
    """

    task: str
    what: str = ""
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    packings: tuple[str, ...] = _PACKINGS


def _denoising(name: str) -> Objective:
    """Describe a denoising objective of `TextToText`."""
    return Objective("TextToText", "", {"objective": name}, _STREAMS)


def _pairs(what: str, objective: str) -> Objective:
    """Describe an objective of masked tokens and of pairs of segments."""
    asked = {"sentence_objective": objective}
    return Objective("MaskedLMSentencePair", what, asked, _PAIRS)


_DENOISING = (
    "bart bert_style deshuffling document_rotation iid_drop iid_replace_spans mass "
    "mass_fragment mixture prefix_lm random_spans sentence_permutation text_infilling "
    "token_deletion token_masking"
).split()
_STRATEGIES = (
    "tokens words ngrams ngram_windows spans given_spans knowledge salient_spans "
    "smoothed_tokens"
).split()
_CORRUPTION = "keras_bertfam.layers.corruption"


class _Objectives(Mapping[str, Objective]):
    """The package's objectives, and subclasses of `DenoisingObjective` by users."""

    own = {
        "mlm": Objective("MaskedLM", "masked tokens", packings=_TRANSLATIONS),
        "nsp": _pairs("masked tokens and next segment", "nsp"),
        "sop": _pairs("masked tokens and order of segments", "sop"),
        "structural": _pairs("masked tokens, next segment and order", "structural"),
        "retromae": Objective(
            "MaskedAutoencoder",
            "masked tokens, and all tokens from one vector",
            packings=("doc", "full"),
        ),
        "tsdae": Objective(
            "DenoisingAutoencoder",
            "a text, from one vector made of some of its words",
            packings=("doc", "full"),
        ),
        "diffusion": Objective("MaskedDiffusionLM", "tokens masked at any rate"),
        "mpnet": Objective("MaskedPermutedLM", "masked tokens in any order"),
        "sbo": Objective("SpanBoundaryLM", "spans, from the tokens at their borders"),
        "rtd": Objective(
            "ReplacedTokenDetection",
            "replaced tokens",
            packings=("segments", *_PACKINGS),
        ),
        "plm": Objective("PermutationLM", "tokens in any order", packings=()),
        "distillation": Objective(
            "Distiller", "a teacher's answers", packings=_TRANSLATIONS
        ),
        "clm": Objective("CausalLM", "next tokens", packings=_STREAMS),
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
    """Name the strategies of masking: the package's own, and those of users."""
    defined = _defined("strategies", "MaskingStrategy")
    return [*dict.fromkeys([*_STRATEGIES, *defined])]


def _defined(module, base):
    """Give the subclasses of a base class by name, if the base's module is loaded."""
    loaded = sys.modules.get(f"{_CORRUPTION}.{module}")
    return getattr(loaded, base).named if loaded else {}
