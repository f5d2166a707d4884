"""Checkpoints of TensorFlow 2, as the Model Garden and TF Hub publish them.

They are object-based: the key of a variable is its place in a tree of Python objects,
which differs from release to release. The variable's own name stands beside the key and
is the same in all releases. Variables are therefore read by their own names here, and
get the names of the original code for TensorFlow 1. `tensorflow1` does the rest. Of a
SavedModel only the variables are read.
"""

import os
import re
from typing import Any

import numpy as np

from keras_bertfam import parsing
from keras_bertfam.presets.checkpoints import file_keys, reading
from keras_bertfam.presets.checkpoints.source import CheckpointError

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
LOWERCASE = "do_lower_case"
PARAMS = "params.yaml"
# Names of variables, behind the name of the model that made them.
_KNOWN = re.compile(
    r"(?:.*/)?((?:word_embeddings|position_embedding|type_embeddings|embeddings/"
    r"layer_norm|embedding_projection|transformer|pooler_transform|cls/predictions)/.*)"
)
_TABLES = {"word_embeddings": "word", "position_embedding": "position"}
_TABLES |= {"type_embeddings": "token_type"}
# Names in the blocks of BERT and ELECTRA, and in the one block of ALBERT.
_BLOCK = (
    (r"^transformer/layer_(\d+)/", r"encoder/layer_\1/"),
    (r"/self_attention/attention_output/", "/attention/output/dense/"),
    (r"/self_attention_output/", "/attention/output/dense/"),
    (r"/self_attention/", "/attention/self/"),
    (r"/self_attention_layer_norm/", "/attention/output/LayerNorm/"),
    (r"/intermediate/", "/intermediate/dense/"),
    (r"/output_layer_norm/", "/output/LayerNorm/"),
    (r"(layer_\d+)/output/(kernel|bias)$", r"\1/output/dense/\2"),
)
_SHARED = (
    (
        r"^transformer/",
        "encoder/transformer/group_0/inner_group_0/",
    ),
    (r"/self_attention/attention_output/", "/attention_1/output/dense/"),
    (r"/self_attention_output/", "/attention_1/output/dense/"),
    (r"/self_attention/", "/attention_1/self/"),
    (r"/self_attention_layer_norm/", "/LayerNorm/"),
    (r"/intermediate/", "/ffn_1/intermediate/dense/"),
    (r"/output_layer_norm/", "/LayerNorm_1/"),
    (
        r"(inner_group_0)/output/(kernel|bias)$",
        r"\1/ffn_1/intermediate/output/dense/\2",
    ),
)


class ReaderByName:
    """A reader of checkpoints that has the names of TensorFlow 1.

    Args:
        reader: reader of an object-based checkpoint, from `tf.train.load_checkpoint`.
        where: path, for messages.

    Attributes:
        num_heads: int, read off the shapes; `None` if there is no attention.
        lowercase: bool, whether the tokenizer lower-cases texts; `None` if the
            checkpoint doesn't say it, as only SavedModels do.
        notes: tuple with a sentence on variables that nothing here takes, or empty.

    Raises:
        CheckpointError: for two variables of one name.
    """

    def __init__(self, reader: Any, where: str) -> None:
        from tensorflow.core.protobuf import trackable_object_graph_pb2

        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        graph.ParseFromString(reader.get_tensor(OBJECT_GRAPH))
        stored = reader.get_variable_to_shape_map()
        own = {
            each.checkpoint_key: each.full_name
            for node in graph.nodes
            for each in node.attributes
            if each.checkpoint_key in stored
        }
        found = {k: _KNOWN.fullmatch(name) for k, name in own.items()}
        names = {key: match[1] for key, match in found.items() if match}
        # The name of an optimizer's slot begins with that of its variable.
        names = {k: n for k, n in names.items() if ".OPTIMIZER_SLOT" not in k}
        odd = sorted(
            name
            for key, name in own.items()
            if key not in names and _is_weight(key, name, stored[key])
        )
        self.notes = (
            (f"In the checkpoint, and not known here: {', '.join(odd[:30])}.",)
            if odd
            else ()
        )
        whole = any(re.match(r"transformer/layer_\d+/", n) for n in names.values())
        projected = any(n.startswith("embedding_projection/") for n in names.values())
        self._keys: dict[str, str] = {}
        for key, name in names.items():
            name = _original(name, whole, projected)
            if name in self._keys:
                raise CheckpointError(
                    f"The checkpoint {where!r} must have one {name!r}. Received: "
                    f"{self._keys[name]!r} and {key!r}."
                )
            self._keys[name] = key
        self._reader, self._stored = reader, stored
        heads = [
            stored[key][1]
            for name, key in self._keys.items()
            if name.endswith("/query/kernel") and len(stored[key]) == 3
        ]
        self.num_heads = heads[0] if heads else None
        lower = f"{LOWERCASE}/.ATTRIBUTES/VARIABLE_VALUE"
        self.lowercase = bool(reader.get_tensor(lower)) if lower in stored else None

    def _shape(self, name):
        """Give the shape in TensorFlow 1, where heads and their widths are one axis."""
        shape = [int(size) for size in self._stored[self._keys[name]]]
        if name.endswith("/output/dense/kernel") and len(shape) == 3:
            return [shape[0] * shape[1], shape[2]]
        if re.search(r"/self/(query|key|value)/", name) and len(shape) > 1:
            if name.endswith("/kernel") and len(shape) == 3:
                return [shape[0], shape[1] * shape[2]]
            if name.endswith("/bias"):
                return [shape[0] * shape[1]]
        return shape

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        return {name: self._shape(name) for name in self._keys}

    def get_variable_to_dtype_map(self) -> dict[str, Any]:
        dtypes = self._reader.get_variable_to_dtype_map()
        return {name: dtypes[key] for name, key in self._keys.items()}

    def get_tensor(self, name: str) -> np.ndarray:
        array = self._reader.get_tensor(self._keys[name])
        return np.reshape(array, self._shape(name))


def _is_weight(key, name, shape):
    """Tell whether a variable is a weight, and no optimizer's state or counter."""
    state = any(
        part in key for part in (".OPTIMIZER_SLOT", "optimizer", "save_counter")
    )
    return not state and bool(shape) and not name.startswith(("Adam", "LAMB"))


def settings_of(folder: str, notes: list[str]) -> dict[str, Any]:
    """Read the encoder's settings in a `params.yaml` of the Model Garden.

    Args:
        folder: path.
        notes: list to which sentences on unknown settings are added.

    Returns:
        dict, empty without such a file.

    Raises:
        CheckpointError: for a file without an encoder's settings, and for settings that
            no model here has.
    """
    if not os.path.lexists(os.path.join(folder, PARAMS)):
        return {}
    path = reading.file_in(folder, PARAMS)
    reading.check_bytes(path, reading.MAX_CONFIG)
    with reading.errors_of(path, ValueError):
        content = parsing.parse_yaml(path.read_text("utf-8"))
    models = [content] if isinstance(content, dict) else []
    models += [each["task"] for each in models if isinstance(each.get("task"), dict)]
    models += [each["model"] for each in models if isinstance(each.get("model"), dict)]
    for name in ("discriminator_encoder", "encoder"):
        found = [m[name] for m in models if isinstance(m.get(name), dict)]
        if found:
            encoder = found[-1]
            kind = encoder.get("type")
            if set(encoder) > {"type"} and isinstance(encoder.get(kind), dict):
                encoder = encoder[kind]
            notes += file_keys.PARAMS.notes(encoder, path)
            width = encoder.get("embedding_width")  # ALBERT's name of it
            return encoder if width is None else {**encoder, "embedding_size": width}
    raise CheckpointError(f"{str(path)!r} must have the settings of an `encoder`.")


def _original(name, whole, projected):
    """Find the name of a variable in the code of BERT, ALBERT or ELECTRA for TF 1."""
    family = "electra" if whole and projected else "bert"
    first, _, rest = name.partition("/")
    if first in _TABLES:
        return f"{family}/embeddings/{_TABLES[first]}_embeddings"
    if first == "embeddings":
        return f"{family}/embeddings/LayerNorm/{rest.rpartition('/')[2]}"
    if first == "embedding_projection":
        kind = "embeddings_project" if whole else "encoder/embedding_hidden_mapping_in"
        return f"{family}/{kind}/{rest}"
    if first == "pooler_transform":
        return f"{family}/pooler/dense/{rest}"
    if first == "cls":
        return name.replace("output_bias/bias", "output_bias")
    for pattern, new in _BLOCK if whole else _SHARED:
        name = re.sub(pattern, new, name)
    return f"{family}/{name}"


def files_of(path: str) -> tuple[str, str] | None:
    """Find the prefix of a SavedModel's variables and the folder of its vocabulary.

    Args:
        path: of a folder.

    Returns:
        A tuple of two paths, or `None` if it is no SavedModel. For a SavedModel without
        files beside the variables, the second path is its own.
    """
    variables, assets = (os.path.join(path, n) for n in ("variables", "assets"))
    prefix = os.path.join(variables, "variables")
    if not os.path.isfile(os.path.join(path, "saved_model.pb")):
        return None
    # Links could lead out of the folder.
    if os.path.islink(variables) or not os.path.isfile(f"{prefix}.index"):
        return None
    with_files = os.path.isdir(assets) and not os.path.islink(assets)
    return prefix, assets if with_files else path
