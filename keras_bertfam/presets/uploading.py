"""Uploads of presets to hubs, by the hubs' own clients."""

import os

from keras_bertfam.presets import cards, directory, existing, folders
from keras_bertfam.types import Path


def upload_preset(uri: str, preset: Path) -> None:
    """Upload a folder that `save_to_preset()` wrote to a hub, all of it.

    It differs from `keras_hub.upload_preset` in the `README.md`. Where the hub has
    none, KerasHub writes one of its own, and then deletes it from the folder. Here the
    folder's goes to the hub as it is. There is one exception: if the folder's is the
    card that was written with the preset, and the hub's is a text of the user's, the
    hub's stays.

    Args:
        uri: `"hf://user/model"`, or `"hf://model"` of the user who is logged in, or
            `"kaggle://user/model/keras/variation"`. A repository that isn't there is
            made, public as by KerasHub. Credentials are those of `hf auth login` and
            `kagglehub.login()`.
        preset: path of the folder.

    Raises:
        ValueError: for another `uri`, or none that the hub takes, and without a
            folder.
        CheckpointError: for a folder that is no preset, isn't whole, or has links
            out of it.
        ImportError: for `hf://` without `huggingface_hub`, in the extra `hf`.

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
    existing.check_preset(preset, ())
    with directory.explain_load_errors(preset):
        directory.inspect_backbone(preset)  # whole, and no link leads out of it
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
