"""Opens tokenizers of users: a file, or a folder of files that is no preset.

This module finds out the kind of the files and their family, and checks that the files
beside them agree. `tokenizer_files` reads the files themselves.
"""

import difflib
import os

from keras_bertfam.presets import preset_checks
from keras_bertfam.presets.checkpoints import formats, huggingface, reading
from keras_bertfam.presets.checkpoints.huggingface import CONFIG, TOKENIZER_CONFIG
from keras_bertfam.presets.checkpoints.source import (
    TOKENIZERS,
    CheckpointError,
    CheckpointSource,
)
from keras_bertfam.presets.families import FAMILIES, transformers_tables
from keras_bertfam.presets.names import list_presets
from keras_bertfam.presets.tokenizer_formats.tokenizer_pipelines import KINDS
from keras_bertfam.types import Path, Tokenizer

_WORDS, _PAIRS, _MERGES = "vocab.txt", "vocab.json", "merges.txt"
_MODEL, _JSON = "spiece.model", "tokenizer.json"
# Classes of `transformers` that hold tokenizers of any kind.
_ANY = ("None", "PreTrainedTokenizer", "TokenizersBackend")
_OF_MPNET = ["<s>", "<pad>", "</s>", "<unk>"]  # its first tokens


def open_tokenizer(path: Path, family: str | None = None) -> CheckpointSource | None:
    """Open the files of a tokenizer, unless they belong to a preset or checkpoint.

    Args:
        path: one of the ways to give a tokenizer that `TOKENIZERS` lists.
        family: name of the family that the tokenizer is for. It counts only if the
            files don't tell their family. `None` for no name.

    Returns:
        A `CheckpointSource` without tensors, for `tokenizer_files.load_tokenizer`.
        `None` for presets and checkpoints, which `loading.load_tokenizer` loads.

    Raises:
        ValueError: for a path that doesn't exist or isn't a tokenizer's, for a folder
            with several tokenizers, and if neither the files nor `family` tell the
            family.
    """
    if family is not None and family not in FAMILIES:
        raise ValueError(
            f"`family` must be one of {sorted(FAMILIES)}. Received: {family!r}."
        )
    path, known = os.fspath(path), list_presets()
    if path in known or "://" in path:
        return None
    if os.path.isdir(path):
        if _is_preset(path):
            return None
        folder, (files, kind) = path, _files_in(path)
    elif os.path.isfile(path):
        folder, (files, kind) = os.path.dirname(path), _files_of(path)
    else:
        near = difflib.get_close_matches(path, known, n=1, cutoff=0.5)
        raise ValueError(
            f"`tokenizer` must be {TOKENIZERS}. Received: {path!r}, which doesn't "
            f"exist{''.join(f'; the nearest name is {name!r}' for name in near)}."
        )
    config = _read_beside(folder, TOKENIZER_CONFIG)
    model_type = _read_beside(folder, CONFIG).get("model_type")
    return CheckpointSource(
        path=path,
        family=_family(path, files, kind, config, model_type, family),
        config={},
        tensors={},
        tokenizer_files=files,
        tokenizer_config=config,
    )


def check_family(tokenizer: Tokenizer, family: str, path: Path) -> None:
    """Check that a tokenizer's class is that of a family's tokenizers.

    Raises:
        ValueError: if it is another class.
    """
    record, name = FAMILIES[family], type(tokenizer).__name__
    cls = record.tokenizer_class or record.tokenizer
    if name != cls:
        raise ValueError(
            f"`family` must be one whose tokenizer is a {name}, like "
            f"{os.fspath(path)!r}, or be left out. Received: {family!r}, whose "
            f"tokenizer is a {cls}."
        )


def _is_preset(folder):
    """Tell whether a folder is a preset, or a checkpoint that a reader knows."""
    names = os.listdir(folder)
    own = (
        preset_checks.PREPROCESSOR_FILE,
        preset_checks.TASK_FILE,
        *preset_checks.WEIGHTS_FILES,
    )
    if any(name in names for name in own):
        return True
    if "registered_name" in _read_beside(folder, _JSON, vocabulary=True):
        return True
    reader = formats.find_reader(folder)
    if reader is huggingface:  # the model's family may be one that isn't supported
        model_type = _read_beside(folder, CONFIG).get("model_type")
        return model_type is None or model_type in [*transformers_tables()]
    return reader is not None


def _files_in(folder):
    """Find the tokenizer's files in a folder, and tell their kind."""
    names = sorted(os.listdir(folder))
    models = [name for name in names if name.endswith(".model")]
    if _MODEL in models:
        models = [_MODEL]
    others = (_JSON, _WORDS, _PAIRS)
    found = {
        name: _files_of(os.fspath(reading.file_in(folder, name)))
        for name in (*others, *models)
        if name in names
        # The JSON has the merges and all else.
        if not (name == _PAIRS and _JSON in names)
    }
    if not found:
        raise CheckpointError(
            f"There is no tokenizer in {folder!r}. Expected: {TOKENIZERS}. "
            f"Received a folder with these files: {', '.join(names) or 'none'}."
        )
    if models and _JSON in found:  # one tokenizer; both may have added tokens
        json_files, _ = found.pop(_JSON)
        found[models[0]][0].update(json_files)
    if len({kind for _, kind in found.values()}) > 1 or len(models) > 1:
        kinds = ", ".join(f"{name} ({kind})" for name, (_, kind) in found.items())
        raise CheckpointError(
            f"The folder {folder!r} must have one tokenizer only. Otherwise give one "
            f"of its files as `tokenizer`. Received: {kinds}."
        )
    return next(iter(found.values()))


def _files_of(path):
    """List the files that belong to one file of a tokenizer, and tell its kind."""
    folder, name = os.path.split(path)
    if name == _JSON:
        content = reading.read_json(path, vocabulary=True)
        if "registered_name" in content:
            raise ValueError(
                f"`tokenizer` must be the folder of a preset, not a file of it. "
                f"Received: {path!r}."
            )
        model = content.get("model")
        said = model.get("type") if isinstance(model, dict) else None
        if said not in [*KINDS]:
            raise CheckpointError(
                f"The model in {path!r} must be of one of the types "
                f"{', '.join(KINDS)}. Received: {said!r}."
            )
        return {_JSON: path}, KINDS[said]
    if name == _PAIRS:
        merges = os.path.join(folder, _MERGES)
        if not os.path.isfile(merges):
            raise CheckpointError(
                f"{path!r} must have {_MERGES} beside it. There is none."
            )
        return {_PAIRS: path, _MERGES: merges}, "byte_pair"
    if name.endswith(_WORDS):  # as bert-base-uncased-vocab.txt
        return {_WORDS: path}, "word_piece"
    if name.endswith(".model"):
        return {_MODEL: path}, "sentence_piece"
    raise ValueError(f"`tokenizer` must be {TOKENIZERS}. Received: {path!r}.")


def _family(path, files, kind, config, model_type, family):
    """Find the family of a tokenizer's files: the one they name, or else `family`."""
    said = str(config.get("tokenizer_class")).removesuffix("Fast")
    classes = {r.tokenizer_class: n for n, r in reversed(FAMILIES.items()) if r.sizes}
    classes |= {f"{t.title}Tokenizer": n for n, t in transformers_tables().items()}
    named, asked = classes.get(said), (family, model_type)
    others = [n for n in asked if isinstance(n, str) and n in FAMILIES]
    if named is not None and FAMILIES[named].tokenizer == kind:
        # `transformers` has one class for several families, such as BART and RoBERTa.
        same = (kind, FAMILIES[named].layout)
        alike = (
            n for n in others if (FAMILIES[n].tokenizer, FAMILIES[n].layout) == same
        )
        return next(alike, named)
    # A JSON has all steps itself, so the class may be unknown.
    if named is not None or (said not in _ANY and _JSON not in files):
        raise CheckpointError(
            f"{TOKENIZER_CONFIG!r} beside {path!r} must have a tokenizer_class of the "
            f"kind {kind!r} that a family here has. Received: {said!r}."
        )
    fitting = [n for n in others if FAMILIES[n].tokenizer == kind]
    if fitting:
        return fitting[-1]
    if kind == "word_piece":
        return "mpnet" if _first_tokens(files) == _OF_MPNET else "bert"
    fitting = sorted(n for n, r in FAMILIES.items() if r.tokenizer == kind and r.sizes)
    raise ValueError(
        f"`family` must be one of {fitting}, whose tokenizer {path!r} can be, unless a "
        f"{TOKENIZER_CONFIG} beside it names the `tokenizer_class`. "
        f"Received: {family!r}."
    )


def _first_tokens(files):
    """Read the first four tokens of a vocabulary of WordPiece."""
    if _WORDS in files:
        return reading.vocabulary_lines(files[_WORDS])[: len(_OF_MPNET)]
    ids = reading.read_json(files[_JSON], vocabulary=True)["model"]["vocab"]
    return sorted(ids, key=ids.get)[: len(_OF_MPNET)]


def _read_beside(folder, name, vocabulary=False):
    """Read a file of JSON in a folder; give an empty dict if there is none."""
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return {}
    return reading.read_json(path, vocabulary=vocabulary)
