"""Reads and writes folders of DPR in the format of `transformers`.

A folder holds one of three models: the encoder of questions, the encoder of passages,
or a reader of passages, whose encoder is read. Each encoder is a BERT whose tensors
have other names.
"""

import dataclasses
import json
import os
import pathlib

from keras_bertfam.presets.checkpoints import huggingface, reading
from keras_bertfam.presets.checkpoints.source import CheckpointError, CheckpointSource
from keras_bertfam.presets.converting import exporting
from keras_bertfam.presets.folders import write_aside
from keras_bertfam.presets.inspection import check_no_preset
from keras_bertfam.types import Model, Path

_TYPE, _PROJECTION = "dpr", "projection_dim"
# By tower, its class in `transformers` and the name of its folder here. Tensors' names
# begin with one of `_PREFIXES`, which `_BERT` follows.
TOWERS = {
    "query": ("DPRQuestionEncoder", "question_encoder"),
    "passage": ("DPRContextEncoder", "ctx_encoder"),
}
_PREFIXES = ("question_encoder", "ctx_encoder", "span_predictor.encoder")
_BERT = "bert_model."


def recognises(path: Path) -> bool:
    """Tell whether a path is a folder of DPR, as `transformers` writes it."""
    return bool(huggingface.config_of(path).get("model_type") == _TYPE)


def open_source(path: Path) -> CheckpointSource:
    """Open the checkpoint in a folder.

    Args:
        path: path of a folder.

    Returns:
        `CheckpointSource` of a BERT without pooler.

    Raises:
        CheckpointError: for missing or damaged files, and encoders with a projection.
    """
    config = reading.read_json(reading.file_in(path, huggingface.CONFIG))
    projection = config.pop(_PROJECTION, 0)
    if projection != 0:
        raise CheckpointError(
            f"The encoder in {os.fspath(path)!r} must have no projection, like DPR's "
            f"published encoders. Received: {_PROJECTION}={projection!r}."
        )
    config.pop("architectures", None)  # names no head of a task here
    source = huggingface.open_source(path, config={**config, "model_type": "bert"})
    tensors = {_name(name): tensor for name, tensor in source.tensors.items()}
    return dataclasses.replace(source, tensors=reading.Tensors(tensors))


def _name(name):
    """Give a tensor the name that it has in a BERT of `transformers`."""
    for prefix in _PREFIXES:
        name = name.removeprefix(f"{prefix}.")
    return f"bert.{name.removeprefix(_BERT)}" if name.startswith(_BERT) else name


def export(task: Model, path: Path) -> None:
    """Write the towers of a `DualEncoder` as two folders that `transformers` loads.

    Args:
        task: `DualEncoder`.
        path: path of the folder for `question_encoder` and `ctx_encoder`.

    Raises:
        ValueError: for a `DualEncoder` that isn't DPR.
    """
    check_no_preset(path)
    expected = {_PROJECTION: None, "pooling": "cls"}
    found = {name: getattr(task, name) for name in expected}
    family, _ = exporting.family_and_config(task.backbone)
    if found != expected or family != "bert":
        raise ValueError(
            "`task` must be a `DualEncoder` that DPR of `transformers` can hold. "
            "Expected: a BertBackbone, projection_dim=None and pooling='cls'. "
            f"Received: {type(task.backbone).__name__}, {found}."
        )
    tokenizer = task.preprocessor and task.preprocessor.tokenizer
    backbones = {"query": task.backbone}
    backbones["passage"] = task.passage_backbone or task.backbone
    with write_aside(path) as folder:
        for tower, backbone in backbones.items():
            _export_tower(tower, backbone, os.path.join(folder, TOWERS[tower][1]))
            if tokenizer is not None:
                exporting.tokenizer_files.export_tokenizer(
                    tokenizer, os.path.join(folder, TOWERS[tower][1])
                )


def _export_tower(tower, backbone, folder):
    from safetensors.numpy import save_file

    architecture, name = TOWERS[tower]
    family, config = exporting.family_and_config(backbone)
    prefix = f"{name}.{_BERT}"
    tensors = exporting.model_tensors(backbone, family, prefix)
    tensors = {n: t for n, t in tensors.items() if f"{prefix}pooler" not in n}
    config |= {"model_type": _TYPE, _PROJECTION: 0, "architectures": [architecture]}
    os.makedirs(folder)
    text = json.dumps(config, indent=2, sort_keys=True)
    pathlib.Path(folder, huggingface.CONFIG).write_text(text + "\n", "utf-8")
    save_file(
        tensors,
        os.path.join(folder, "model.safetensors"),
        metadata={"format": "pt"},
    )
