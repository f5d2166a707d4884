"""The `README.md` of a preset: a model card, with the metadata that hubs read.

The card is for people. The library reads it only to see whether it may be overwritten:
a card that somebody has edited stays.
"""

import contextlib
import hashlib
import numbers
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import yaml

from keras_bertfam.presets import names
from keras_bertfam.types import Model, Path
from keras_bertfam.version import __version__

FILE = "README.md"

_LISTS = ("datasets", "language", "tags")
_STRINGS = ("base_model", "description", "license")
KEYS = (*sorted((*_LISTS, *_STRINGS)), "scores")

_MARK = "\n<!-- Written by keras_bertfam, {}, which replaces it while unchanged. -->"
_MARKED = re.compile(re.escape(_MARK).replace(r"\{\}", "([0-9a-f]{16})") + "\n")
_MOST = 1 << 20
# The hubs' names of metrics.
_METRICS = {
    "accuracy": "accuracy",
    "entity_f1": "seqeval",
    "f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "squad_f1": "squad",
    "word_accuracy": "accuracy",
}
_SIZES = {
    "layers": "num_layers",
    "width": "hidden_dim",
    "heads": "num_heads",
    "inner width": "intermediate_dim",
    "vocabulary": "vocabulary_size",
    "longest row": "max_sequence_length",
}


def check(card: Mapping[str, Any] | None) -> None:
    """Raise a `ValueError` for an unknown key or a wrong value in a card's facts."""
    if not isinstance(card, Mapping | None):
        raise ValueError(f"`card` must be a dict. Received: {card!r}.")
    for name, value in (card or {}).items():
        texts = value if name in _LISTS and isinstance(value, list | tuple) else [value]
        if name not in KEYS:
            raise ValueError(
                f"`card` must have keys of {list(KEYS)}. Received: {name!r}."
            )
        if name == "scores":
            fits = isinstance(value, Mapping) and all(
                isinstance(k, str) and isinstance(v, numbers.Real)
                for k, v in value.items()
            )
            if not fits:
                raise ValueError(
                    f"`card` must have a dict of numbers as {name!r}. "
                    f"Received: {value!r}."
                )
        elif not all(isinstance(text, str) and text.strip() for text in texts):
            kind = "a string or a list of them" if name in _LISTS else "a string"
            raise ValueError(
                f"`card` must have {kind} as {name!r}. Received: {value!r}."
            )
    base = (card or {}).get("base_model", "x/y")
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", base):
        raise ValueError(
            "`card` must have the id of a model on the hub, organisation/model, as "
            f"'base_model'. Received: {base!r}."
        )


def write(
    folder: Path,
    model: Model,
    training: Mapping[str, Any],
    card: Mapping[str, Any] | None = None,
) -> None:
    """Write the card of a backbone or task.

    Args:
        folder: path.
        model: a backbone, or a task with one.
        training: dict, see `TaskPresets.training_facts`.
        card: dict or `None`. The user's facts, with the keys `KEYS`.
    """
    card = dict(card or {})
    scores = card.pop("scores", training.get("scores", {}))
    head = yaml.safe_dump(
        _metadata(model, card, scores), sort_keys=False, allow_unicode=True
    )
    text = f"---\n{head}---\n\n{_text(model, training, card, scores)}"
    with open(os.path.join(folder, FILE), "w", encoding="utf-8", newline="\n") as file:
        file.write(f"{text}{_MARK.format(_digest(text))}\n")


def is_ours(path: Path) -> bool:
    """Tell whether a file is a card of this library that nobody has edited."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if os.path.islink(path) or os.path.getsize(path) > _MOST:
            return False
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        for match in _MARKED.finditer(text):
            if match.end() == len(text):
                return match[1] == _digest(text[: match.start()])
    return False


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _metadata(model, card, scores):
    """Make the YAML before the text."""
    backbone = getattr(model, "backbone", model)
    family = _family(backbone)
    tags = ["keras", "keras-bertfam", *([family] if family else [])]
    tags += [tag for tag in _listed(card.get("tags", ())) if tag not in tags]
    metrics = (_METRICS.get(name.removeprefix("val_")) for name in scores)
    origin = backbone.origin or ""
    base = origin.removeprefix("hf://") if origin.startswith("hf://") else None
    facts = {
        # The hubs' name of the format; no other in their list fits.
        "library_name": "keras-hub",
        "pipeline_tag": _pipeline(model),
        "tags": tags,
        "license": _license(backbone, card),
        "language": card.get("language"),
        "datasets": _listed(card.get("datasets", ())),
        "base_model": card.get("base_model", base),
        "metrics": sorted({metric for metric in metrics if metric}),
    }
    return {name: _plain(value) for name, value in facts.items() if value}


def _pipeline(model):
    if hasattr(model, "fill_mask"):
        return "fill-mask"
    if any(cls.__name__ == "TokenBackbone" for cls in type(model).__mro__):
        return "feature-extraction"
    return getattr(model, "pipeline", None)


def _license(backbone, card):
    """Choose the license: the given one, or the one of the published weights."""
    presets = names.published().values() if backbone.origin else ()
    known = (p.license for p in presets if backbone.origin in p.sources)
    return card.get("license", next(known, None) or "").lower() or None


def _family(backbone):
    return None if backbone.record is None else backbone.record.name


def _listed(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


def _text(model, training, card, scores):
    backbone = getattr(model, "backbone", model)
    of = "" if model is backbone else f" of {type(backbone).__name__}"
    name = type(model).__name__
    sizes = {title: getattr(backbone, a, None) for title, a in _SIZES.items()}
    facts = {
        "family": _family(backbone),
        **sizes,
        "parameters": f"{model.count_params():,}",
        "began with": backbone.origin,
        "licence of the weights": _license(backbone, card) or "not said",
        "data": ", ".join(_listed(card.get("datasets", ()))) or "not said",
    }
    parts = [f"# {name}{of}", card.get("description"), _table("model", facts)]
    if training:
        settings = {"steps": training["steps"], **training["settings"]}
        parts.append(_table("training", settings))
        parts.append(f"Published settings are those of {training['source']}.")
    parts.append(_table("scores" if "scores" in card else "last epoch", scores))
    if type(model).__module__.startswith("keras_bertfam."):
        place = "models" if model is backbone else "tasks"
        parts.append(
            f"```python\nimport keras_bertfam\n\nmodel = keras_bertfam.{place}.{name}"
            '.from_preset("hf://user/name")  # or the path of the folder\n```'
        )
    parts.append(
        f"Written by keras_bertfam {__version__}, with Keras {keras.__version__}."
    )
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(title, rows):
    shown = {name: value for name, value in rows.items() if value is not None}
    lines = [f"| {title} | |", "|---|---|"]
    lines += [f"| {_cell(name)} | {_cell(value)} |" for name, value in shown.items()]
    return "\n".join(lines) if shown else None


def _cell(value):
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return " ".join(text.split()).replace("|", r"\|")
