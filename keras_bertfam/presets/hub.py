"""Checkpoints on hubs: downloaded to folders on this machine, and uploaded.

Downloads, uploads, caches and credentials are those of `huggingface_hub` and
`kagglehub`.
"""

import os

from keras_bertfam import parsing
from keras_bertfam.presets import cards, folders, inspection, preset_checks
from keras_bertfam.presets.checkpoints import reading
from keras_bertfam.presets.names import (
    TOKENIZER_FILES,
    TRANSFORMER_FILES,
    PublishedPreset,
)
from keras_bertfam.types import Path

# Of the tokenizer, of rows and of writing.
_SETTINGS = (
    "tokenizer_config.json",
    TRANSFORMER_FILES[0],
    "config_sentence_transformers.json",
    "tokenizer.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "artifact.metadata",
    *(name for names in TOKENIZER_FILES.values() for name in names),
)
# For each layout: the files of the tokenizer and of heads; and the files of weights, of
# which the first that exists is taken. An index names more files.
_TRANSFORMERS = (
    _SETTINGS,
    (
        "model.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
    ),
)
_KERAS = (
    (
        "preprocessor.json",
        "tokenizer.json",
        "task.json",
        "assets/tokenizer/vocabulary.txt",
        "assets/tokenizer/vocabulary.json",
        "assets/tokenizer/merges.txt",
        "assets/tokenizer/vocabulary.spm",
    ),
    ("model.weights.h5", "model.weights.json"),
)
_LOADABLE = "the path of a folder that `save_to_preset()` or `transformers` wrote"


def locate(
    preset: Path | PublishedPreset, load_weights: bool = True, tokenizer: bool = True
) -> Path:
    """Find the folder that holds a preset, and download it if it is on a hub.

    Args:
        preset: path, handle (`hf://organisation/model` or
            `kaggle://organisation/model/keras/variation`), or `PublishedPreset`.
        load_weights: bool. Whether the weights are needed.
        tokenizer: bool. Whether the tokenizer's files are needed.

    Returns:
        Path of a folder: the given one, or the downloaded one.

    Raises:
        ConnectionError: if no source can be reached. The error says what was tried, and
            how to load from a folder.
        ValueError: for a published size without a source of weights.
    """
    if isinstance(preset, PublishedPreset):
        name, handles = preset.name, preset.sources
    elif _scheme(preset) in _DOWNLOADERS:
        name, handles = os.fspath(preset), (os.fspath(preset),)
    else:
        return preset
    if not handles:
        raise ValueError(
            f"No published weights of {name!r} are known. Pass `load_weights=False` "
            f"for new weights of that size, or {_LOADABLE}."
        )
    tried = []
    for handle in handles:
        try:
            return _fetch(handle, load_weights, tokenizer)
        except Exception as error:  # the hubs' HTTP libraries raise any kind
            line = (str(error).strip() or "no message").splitlines()[0]
            tried.append((f"{handle} ({type(error).__name__}: {line})", error))
    raise ConnectionError(
        f"The files of {name!r} can't be fetched. Tried: "
        f"{'; '.join(line for line, _ in tried)}. To load them without a network, "
        f"copy the folder from a machine that has one ({_command(handles[0])}), and "
        f"give {_LOADABLE}, as in `from_preset('path/to/folder')`. With "
        "`load_weights=False` a published name gives new weights of that size."
    ) from tried[0][1]


def handle(preset: Path | PublishedPreset) -> str | None:
    """Give the handle of a preset on a hub; `None` for a folder."""
    if isinstance(preset, PublishedPreset):
        return preset.sources[0] if preset.sources else None
    return os.fspath(preset) if _scheme(preset) in _DOWNLOADERS else None


def _scheme(preset):
    scheme, mark, _ = os.fspath(preset).partition("://")
    return scheme.lower() if mark else None


def _fetch(handle, load_weights, tokenizer):
    download = _DOWNLOADERS[_scheme(handle)](handle.partition("://")[2])
    config = download("config.json")
    modules = None if config else download("modules.json")
    if modules is not None:
        _fetch_modules(download, modules, load_weights, handle)
        download("config_sentence_transformers.json")
        return os.path.dirname(modules)
    if config is None:
        raise FileNotFoundError(f"there is no config.json in {handle}")
    content = reading.read_json(config)
    others, weights = _KERAS if "registered_name" in content else _TRANSFORMERS
    for name in others if tokenizer or load_weights else ():
        download(name)
    if others is _TRANSFORMERS[0] and (modules := download("modules.json")):
        next(filter(None, map(download, TRANSFORMER_FILES)), None)
        _fetch_modules(download, modules, load_weights, handle)
    if load_weights:
        if others is _KERAS[0]:
            download("task.weights.h5")
        _fetch_weights(download, weights, handle)
    return os.path.dirname(config)


def _fetch_modules(download, path, load_weights, handle):
    """Download the other modules of a `sentence-transformers` folder."""
    with open(path, encoding="utf-8") as file:
        modules = parsing.parse_json(file.read())
    for module in modules:
        name = module["path"]
        if not name or os.path.basename(name) != name:
            continue  # the root, or a name that is refused later
        download(f"{name}/config.json")
        kind = module["type"].rpartition(".")[2]
        if kind == "Transformer":
            for file in _SETTINGS:
                download(f"{name}/{file}")
            settings = (f"{name}/{file}" for file in TRANSFORMER_FILES)
            next(filter(None, map(download, settings)), None)
        if load_weights and kind in ("Transformer", "Dense"):
            names = [f"{name}/{file}" for file in _TRANSFORMERS[1]]
            _fetch_weights(download, names, handle)


def _fetch_weights(download, names, handle):
    """Download the first existing file of weights, and the files that it names."""
    for name in names:
        path = download(name)
        if path is None:
            continue
        if name.endswith(".json"):
            index = reading.read_json(path)["weight_map"]
            folder = name.rpartition("/")[0]
            flat = (v if isinstance(v, list) else [v] for v in index.values())
            for shard in sorted({name for names in flat for name in names}):
                if os.path.basename(shard) != shard:
                    raise ValueError(f"{name} of {handle} names the file {shard!r}")
                if download(f"{folder}/{shard}" if folder else shard) is None:
                    raise FileNotFoundError(f"there is no {shard} in {handle}")
        return
    raise FileNotFoundError(f"there is none of {', '.join(names)} in {handle}")


def _hugging_face(repository):
    """Make a function that downloads a file and returns its path, or `None`."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError(
            "`hf://` needs huggingface_hub: pip install 'keras-bertfam[hf]'"
        ) from error
    errors = huggingface_hub.errors

    def download(name):
        try:
            return huggingface_hub.hf_hub_download(repository, name)
        except errors.LocalEntryNotFoundError:
            raise  # without network and cache the file may still exist
        except errors.EntryNotFoundError:
            return None

    return download


def _kaggle(handle):
    """Make the same kind of function for KerasHub's presets on Kaggle."""
    import kagglehub

    def download(name):
        try:
            return kagglehub.model_download(handle, name)
        except Exception as error:
            absent = ("404 Client Error", "is not present in the model files")
            if any(sign in str(error) for sign in absent):
                return None
            raise

    return download


_DOWNLOADERS = {"hf": _hugging_face, "kaggle": _kaggle}


def _command(handle):
    scheme, _, rest = handle.partition("://")
    if scheme == "hf":
        return f"`hf download {rest} --local-dir path/to/folder`"
    return f"`kagglehub.model_download({rest!r})` in Python"


def upload_preset(uri: str, preset: Path) -> None:
    """Upload a whole folder of `save_to_preset()` to a hub.

    It differs from `keras_hub.upload_preset` in the `README.md`. If the hub has none,
    KerasHub writes its own, and then deletes it from the folder. Here the folder's
    `README.md` is uploaded as it is, with one exception: if it is an unedited card of
    this library, and the hub has a text of the user's, the hub's stays.

    Args:
        uri: `"hf://user/model"`, `"hf://model"` for the user who is logged in, or
            `"kaggle://user/model/keras/variation"`. A missing repository is created; it
            is public, as with KerasHub. Credentials come from `hf auth login` and
            `kagglehub.login()`.
        preset: path of the folder.

    Raises:
        ValueError: for a wrong `uri`, or one that the hub refuses; and if there is no
            such folder.
        CheckpointError: for a folder that isn't a preset, is incomplete, or has links
            to files outside of it.
        ImportError: for `hf://` without `huggingface_hub`; the extra `hf` installs it.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    model.save_to_preset("to_upload", card={"license": "apache-2.0"})
    keras_bertfam.presets.upload_preset("hf://me/my_bert", "to_upload")
    ```
    """
    scheme, mark, name = uri.partition("://")
    if scheme not in _UPLOADERS or not mark or not name:
        raise ValueError(
            "`uri` must be hf://user/model or kaggle://user/model/keras/variation. "
            f"Received: {uri!r}."
        )
    inspection.check_preset(preset, ())
    with preset_checks.explain_load_errors(preset):
        preset_checks.inspect_backbone(preset)  # complete, without links to outside
    folders.read_whole(preset, lambda: _UPLOADERS[scheme](uri, os.fspath(preset)))


def _to_hugging_face(uri, preset):
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError(
            "`hf://` needs huggingface_hub: pip install 'keras-bertfam[hf]'."
        ) from error
    hub = huggingface_hub.HfApi()
    name = hub.create_repo(uri.partition("://")[2], exist_ok=True).repo_id
    left_out = []
    if cards.is_ours(os.path.join(preset, cards.FILE)):
        if hub.file_exists(name, cards.FILE):
            theirs = hub.hf_hub_download(name, cards.FILE)
            # In the cache it is a link.
            if not cards.is_ours(os.path.realpath(theirs)):
                left_out = [cards.FILE]
    hub.upload_folder(repo_id=name, folder_path=preset, ignore_patterns=left_out)


def _to_kaggle(uri, preset):
    import keras_hub

    keras_hub.upload_preset(uri, preset)


_UPLOADERS = {"hf": _to_hugging_face, "kaggle": _to_kaggle}
