"""Folders of `sentence-transformers`, read and written key by key."""

import dataclasses
import json
import os
import pathlib
import string
from collections.abc import Mapping
from typing import Any

from keras_bertfam import parsing
from keras_bertfam.presets.checkpoints import huggingface, late_interaction, reading
from keras_bertfam.presets.checkpoints.source import (
    CheckpointError,
    CheckpointSource,
    unfit,
)
from keras_bertfam.presets.converting import configs, exporting
from keras_bertfam.presets.families.parts.weight_maps import dense
from keras_bertfam.presets.folders import write_aside
from keras_bertfam.presets.names import TRANSFORMER_FILES
from keras_bertfam.types import Model, Path

MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
_TRANSFORMER = TRANSFORMER_FILES[0]
_LONGEST = 2**31 - 1
# Module names of classes. All versions of the library that have a class know its name.
_TYPES = "sentence_transformers.models"
_SPARSE_TYPES = "sentence_transformers.sparse_encoder.models"
_TOKEN_TYPES = "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask"
# Our names of poolings and theirs. Older folders have a flag for each.
POOLINGS = {
    "mean": "mean",
    "cls": "cls",
    "max": "max",
    "last": "lasttoken",
    "weighted": "weightedmean",
}
_FLAGS = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "last": "pooling_mode_lasttoken",
    "weighted": "pooling_mode_weightedmean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
}
SPARSE_POOLINGS = ("max", "sum")
SPARSE_ACTIVATIONS = ("relu", "log1p_relu")
_ACTIVATIONS = {
    None: "torch.nn.modules.linear.Identity",
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
}
_PORTS = ("module_input_name", "module_output_name")
# Keys without a meaning here, by file, and the values that they may have. `None` allows
# every value. `USED` has the keys that are used.
MEANINGLESS: dict[str, dict[str, Any]] = {
    PROMPTS: {
        "__version__": None,
        "default_prompt_name": (None,),
    },
    _TRANSFORMER: {
        # The config of `transformers` has the task and its outputs.
        "transformer_task": None,
        "modality_config": None,
        "module_output_name": None,
        "do_lower_case": (False,),
        "config_args": None,
        "model_args": None,
        "tokenizer_args": None,
        "processor_kwargs": None,
        "processing_kwargs": None,
        "unpad_inputs": None,
        "tokenizer_name_or_path": (None,),
    },
    "Pooling": {"include_prompt": (True,)},
    "Dense": {"use_residual": (False,)},
    "Normalize": {},
    "MultiVectorMask": {
        "skiplist_tasks": (["document"],),
        "keep_only_token_ids": (None,),
    },
    # The number of tokens that it computes at a time.
    "SpladePooling": {"chunk_size": None},
}
USED = {
    PROMPTS: (
        *("prompts", "similarity_fn_name", "activation_fn", "model_type"),
        "truncate_dim",
        *late_interaction.PYLATE,
    ),
    _TRANSFORMER: ("max_seq_length", *late_interaction.LENGTHS),
    "Pooling": (
        "pooling_mode",
        "embedding_dimension",
        "word_embedding_dimension",
        *_FLAGS.values(),
    ),
    "Dense": ("in_features", "out_features", "bias", "activation_function", *_PORTS),
    "Normalize": _PORTS,
    "MultiVectorMask": ("skiplist_words",),
    "SpladePooling": (
        "pooling_strategy",
        "activation_function",
        "embedding_dimension",
        "word_embedding_dimension",
    ),
}
# The tasks that such folders are made for.
_TASKS = (
    "TextEmbedder",
    "SparseEncoder",
    "LateInteraction",
    "CrossEncoder",
    "TextRegressor",
    "TextClassifier",
)
# Values of `model_type`. The last one is PyLate's.
_MODEL_TYPES = (
    "SentenceTransformer",
    "SparseEncoder",
    "MultiVectorEncoder",
    "CrossEncoder",
    "ColBERT",
)
# The modules that a folder may have, in their order, and those that it must have.
_DENSE = ("Transformer", "Pooling", "Dense", "Normalize"), ("Transformer",)
_SPARSE = (("Transformer", "SpladePooling"),) * 2
_TOKENS = ("Transformer", "Dense", "MultiVectorMask", "Normalize")
# Of these `transformers` has a class for the encoder alone, which is taken there.
_ENCODER_DECODERS = ("t5", "mt5", "umt5")
# Of these a TextEmbedder reads the last token where others have the first.
_READ_AT_THE_END = ("xlnet", "gpt2", "openai-gpt", "modernbert-decoder")
# Of these `transformers` puts no special tokens into rows.
WITHOUT_SPECIALS = ("gpt2", "gpt", "openai-gpt")
BARE = "bare"
PROJECTION = dense("projection", "sentence_projection")


def recognises(path: Path) -> bool:
    """Tell whether a path is a folder with a list of modules."""
    return os.path.isfile(os.path.join(path, MODULES))


def open_source(path: Path) -> CheckpointSource:
    """Open the Transformer of such a folder, and read its pooling and other modules.

    Args:
        path: path of a folder.

    Returns:
        `CheckpointSource`, with the arguments of a `TextEmbedder`, `SparseEncoder` or
        `LateInteraction`.

    Raises:
        CheckpointError: for modules, keys and values that no task here has.
    """
    path = os.fspath(path)
    modules = _modules(path)
    kinds = [kind for kind, _ in modules]
    file = _file(path, PROMPTS)
    whole = {} if file is None else _accounted(file, PROMPTS)
    if whole.get("model_type") not in (None, *_MODEL_TYPES):
        expected = f"one of {', '.join(_MODEL_TYPES)}"
        raise unfit(file, "model_type", expected, whole["model_type"])
    if whole.get("truncate_dim") is not None and "Pooling" not in kinds:
        expected = "left out without a Pooling"
        raise unfit(file, "truncate_dim", expected, whole["truncate_dim"])
    prefixes = [whole.get(f"{role}_prefix") for role in ("query", "document")]
    # PyLate's older folders have no `model_type`.
    of_pylate = whole.get("model_type") == "ColBERT" or any(prefixes)
    if of_pylate and kinds == ["Transformer", "Dense"]:
        return _of_tokens(path, dict(modules), whole, of_pylate=True)
    if kinds == [*_TOKENS]:
        return _of_tokens(path, dict(modules), whole)
    if not any(
        {*least} <= {*kinds} and kinds == [kind for kind in order if kind in kinds]
        for order, least in (_DENSE, _SPARSE)
    ):
        raise CheckpointError(
            f"The modules of {path!r} must be one of these lists: Transformer, "
            f"SpladePooling; {', '.join(_TOKENS)}; or a Transformer and any of "
            f"{', '.join(_DENSE[0][1:])}, in this order. "
            f"Received: {', '.join(kinds)}."
        )
    return _of_texts(path, dict(modules), file, whole)


def _of_texts(path, modules, file, whole):
    """Read a folder whose model gives a vector for each text, dense or sparse."""
    folders = {kind: os.path.join(path, name) for kind, name in modules.items()}
    source = huggingface.open_source(folders["Transformer"])
    told = _transformer_settings(folders["Transformer"])
    for settings, names in (
        (told, late_interaction.LENGTHS),
        (whole, late_interaction.PYLATE),
    ):
        given = [name for name in names if settings.get(name) is not None]
        if given:
            raise CheckpointError(
                f"{path!r} may have {given[0]!r} only with a MultiVectorMask. "
                f"Received: {settings[given[0]]!r}."
            )
    config, pooled = dict(source.config), "Pooling" in folders
    sparse, notes = {}, []
    dense_arguments, tensors = _dense_modules(path, folders, source)
    if "SpladePooling" in folders:
        sparse = _sparse_pooling(folders["SpladePooling"], config.get("vocab_size"))
    if file is not None:
        prompts = _prompts(file, whole)
        dense_arguments["prompts"] = prompts
        dense_arguments["truncate_dim"] = whole.get("truncate_dim")
        sparse = sparse and {**sparse, "prompts": prompts}
        similarity = whole.get("similarity_fn_name")
        ours, gives = ("dot", "inner products") if sparse else ("cosine", "cosines")
        if similarity not in (None, ours):
            notes.append(
                f"In spite of similarity_fn_name={similarity!r}, `similarity()` gives "
                f"{gives}."
            )
        if "activation_fn" in whole:  # as cross-encoders have it
            config["sentence_transformers"] = {"activation_fn": whole["activation_fn"]}
    preprocessor_arguments = {
        "sequence_length": _length(told, source.tokenizer_config),
        **truncation(source),
    }
    if pooled and config.get("model_type") in WITHOUT_SPECIALS:
        preprocessor_arguments["layout"] = BARE
    return dataclasses.replace(
        source,
        path=path,
        config=config,
        tensors=reading.Tensors(tensors),
        task_arguments={
            "TextEmbedder": dense_arguments if pooled else {},
            "SparseEncoder": sparse,
        },
        preprocessor_arguments=dict.fromkeys(_TASKS, preprocessor_arguments),
        notes=(*source.notes, *notes),
    )


def _dense_modules(path, folders, source):
    """Read Pooling, Dense and Normalize, as far as they are there.

    Returns:
        The arguments of a `TextEmbedder`; and the tensors of the source and of Dense.
    """
    arguments: dict[str, Any] = {"normalize": "Normalize" in folders}
    tensors = dict(source.tensors)
    family = source.config.get("model_type")
    if "Pooling" in folders:
        if family in _ENCODER_DECODERS:
            raise CheckpointError(
                f"The Transformer of {path!r} must be an encoder. Received: "
                f"{family!r}, of which sentence-transformers reads other states than a "
                "TextEmbedder does."
            )
        mode = _pooling(folders["Pooling"], _width(source))
        if mode == "cls" and family in _READ_AT_THE_END:
            expected = f"another mode than 'cls' for {family!r}, read at its end here"
            raise unfit(folders["Pooling"], "pooling", expected, mode)
        arguments["pooling"] = mode
    if "Normalize" in folders:
        _check_ports(folders["Normalize"], "sentence_embedding")
    if "Dense" in folders:
        told, weights = _projection(folders["Dense"], "sentence_embedding")
        arguments |= told
        tensors |= weights
    return arguments, tensors


def _of_tokens(path, modules, whole, of_pylate=False):
    """Open a folder of a model that gives a vector for each token."""
    folders = {kind: os.path.join(path, name) for kind, name in modules.items()}
    source = huggingface.open_source(folders["Transformer"])
    told, weights = _projection(folders["Dense"], "token_embeddings")
    if told["projection_bias"] or told["projection_activation"] is not None:
        raise unfit(folders["Dense"], "Dense", "without a bias and activation", told)
    settings = _transformer_settings(folders["Transformer"])
    longest = _length(settings, source.tokenizer_config)
    if truncation(source):
        where = os.path.join(path, huggingface.TOKENIZER_CONFIG)
        raise unfit(where, "truncation_side", "'right' with vectors of tokens", "left")
    prompts = dict(_prompts(path, whole))
    for role in ("query", "document"):
        before = whole.get(f"{role}_prefix") or ""
        if not isinstance(before, str):
            raise unfit(path, f"{role}_prefix", "a string", before)
        if before:
            prompts[role] = before + prompts.get(role, "").removeprefix(before)
    if of_pylate:
        where = os.path.join(path, PROMPTS)
        settings |= late_interaction.settings_of_pylate(whole, where)
        skipped = whole.get("skiplist_words")
        skipped = list(string.punctuation) if skipped is None else skipped
    else:
        _check_ports(folders["Normalize"], "token_embeddings")
        skipped = _config(folders["MultiVectorMask"], "MultiVectorMask").get(
            "skiplist_words"
        )
    given = late_interaction.preprocessor_arguments(
        settings, prompts, skipped, longest, path
    )
    similarity, notes = whole.get("similarity_fn_name"), list(source.notes)
    if similarity not in (None, "maxsim", "MaxSim"):
        notes.append(
            f"In spite of similarity_fn_name={similarity!r}, scores are sums of "
            "cosines."
        )
    return dataclasses.replace(
        source,
        path=path,
        tensors=reading.Tensors({**source.tensors, **weights}),
        task_arguments={"LateInteraction": {"projection_dim": told["projection_dim"]}},
        preprocessor_arguments={"LateInteraction": given},
        notes=tuple(notes),
    )


def _prompts(file, whole):
    prompts = whole.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(prompt, str) for prompt in prompts.values()
    ):
        raise unfit(file, "prompts", "strings by their names", prompts)
    return prompts


def _check_ports(folder, expected):
    """Check whether a `Normalize` is for vectors of texts, or for those of tokens."""
    config = _config(folder, "Normalize", needed=False)
    _check(folder, config, **dict.fromkeys(_PORTS, expected))


def _modules(path):
    """List the kind of each module and the name of its folder."""
    file = reading.file_in(path, MODULES)
    reading.check_bytes(file, reading.MAX_CONFIG)
    with reading.errors_of(file, ValueError):
        listed = parsing.parse_json(pathlib.Path(file).read_text("utf-8"))
    if not isinstance(listed, list) or not all(isinstance(m, dict) for m in listed):
        raise CheckpointError(f"{str(file)!r} must hold a list of modules.")
    found = []
    for module in listed:
        _refuse_unknown(file, module, ("type", "path", "idx", "name", "kwargs"))
        kind, name = module.get("type"), module.get("path")
        plain = isinstance(name, str) and name == os.path.basename(name)
        if not plain or not isinstance(kind, str) or module.get("kwargs"):
            raise CheckpointError(
                f"A module of {str(file)!r} must have a `type`, a `path` in its folder "
                f"and no `kwargs`. Received: {module!r}."
            )
        folder, kind = os.path.join(path, name), kind.rpartition(".")[2]
        lacking = kind != "Normalize" and not os.path.isdir(folder)  # it may be empty
        if name and (os.path.islink(folder) or lacking):
            raise CheckpointError(f"{folder!r} must be a folder.")
        if kind != "Dropout":  # which has an effect in training only
            found.append((kind, name))
    if [kind for kind, _ in found] == ["MLMTransformer", "SpladePooling"]:
        # The older name of a Transformer with a masked language model's head.
        found[0] = ("Transformer", found[0][1])
    return found


def _file(folder, name):
    """Find the path of a file; give `None` if there is no such file."""
    there = os.path.lexists(os.path.join(folder, name))
    return reading.file_in(folder, name) if there else None


def _config(folder, kind, needed=True):
    file = _file(folder, "config.json")
    if file is None and not needed:
        return {}
    return _accounted(file or reading.file_in(folder, "config.json"), kind)


def _accounted(file, kind):
    """Read the used keys of a file; refuse keys and values that aren't known."""
    config = reading.read_json(file)
    meaningless, used = MEANINGLESS[kind], USED[kind]
    _refuse_unknown(file, config, (*used, *meaningless))
    for key, values in meaningless.items():
        if key in config and values is not None and config[key] not in values:
            raise CheckpointError(
                f"{key!r} of {str(file)!r} must be {values[0]!r}. "
                f"Received: {config[key]!r}."
            )
    return {key: config[key] for key in used if key in config}


def _refuse_unknown(file, config, known):
    for key, value in config.items():
        if key not in known:
            raise CheckpointError(
                f"{str(file)!r} must have no other keys than {', '.join(known)}. "
                f"Received: {key!r}={value!r}."
            )


def _width(source):
    return configs.to_ours(source)["hidden_dim"]


def _check(folder, config, **expected):
    """Raise an error for a value that differs from the model's."""
    for key, value in expected.items():
        if config.get(key, value) != value:
            raise unfit(folder, key, value, config[key])


def _pooling(folder, width):
    config = _config(folder, "Pooling")
    _check(folder, config, embedding_dimension=width, word_embedding_dimension=width)
    modes = [ours for ours, flag in _FLAGS.items() if config.get(flag)]
    if "pooling_mode" in config:
        named = config["pooling_mode"]
        named = named if isinstance(named, list) else [named]
        ours = {theirs: name for name, theirs in POOLINGS.items()}
        modes = [ours.get(str(name), str(name)) for name in named]
    modes = modes or ["mean"]
    if len(modes) > 1 or modes[0] not in POOLINGS:
        raise CheckpointError(
            f"The pooling of {folder!r} must be one of {', '.join(POOLINGS.values())}. "
            f"Received: {', '.join(modes)}."
        )
    return modes[0]


def _sparse_pooling(folder, vocabulary_size):
    """Read a `SparseEncoder`'s arguments."""
    config = _config(folder, "SpladePooling")
    for key in ("embedding_dimension", "word_embedding_dimension"):
        if config.get(key) is not None:
            _check(folder, config, **{key: vocabulary_size})
    found = {}
    for ours, theirs, known in (
        ("pooling", "pooling_strategy", SPARSE_POOLINGS),
        ("activation", "activation_function", SPARSE_ACTIVATIONS),
    ):
        found[ours] = config.get(theirs, known[0])
        if found[ours] not in known:
            raise unfit(folder, theirs, f"one of {', '.join(known)}", found[ours])
    return found


def _projection(folder, ports):
    """Read a `TextEmbedder`'s arguments, and tensors by the names of `PROJECTION`.

    Args:
        folder: path.
        ports: what the projection takes, `"sentence_embedding"` or
            `"token_embeddings"`.
    """
    config = _config(folder, "Dense")
    _check(folder, config, **dict.fromkeys(_PORTS, ports))
    known = {theirs.rpartition(".")[2]: ours for ours, theirs in _ACTIVATIONS.items()}
    named = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    if named not in known:
        raise CheckpointError(
            f"The activation of {folder!r} must be one of "
            f"{', '.join(_ACTIVATIONS.values())}. "
            f"Received: {config['activation_function']!r}."
        )
    here = (name for name in huggingface.WEIGHTS if _file(folder, name))
    name = next(here, None)
    if name is None:
        raise CheckpointError(
            f"{folder!r} must have weights: one of the files "
            f"{', '.join(huggingface.WEIGHTS)}."
        )
    found = huggingface.WEIGHTS[name](reading.file_in(folder, name))
    _refuse_unknown(folder, found, ("linear.weight", "linear.bias"))
    tensors = {
        f"sentence_projection.{n.partition('.')[2]}": t for n, t in found.items()
    }
    weight = tensors.get("sentence_projection.weight")
    if weight is None or len(weight.shape) != 2:
        raise CheckpointError(
            f"{folder!r} must have the matrix 'linear.weight'. "
            f"Received: {', '.join(found)}."
        )
    bias = "linear.bias" in found
    outputs, inputs = weight.shape
    _check(folder, config, in_features=inputs, out_features=outputs, bias=bias)
    arguments = {
        "projection_dim": outputs,
        "projection_activation": known[named],
        "projection_bias": bias,
    }
    return arguments, tensors


def _transformer_settings(folder):
    files = (_file(folder, name) for name in TRANSFORMER_FILES)
    file = next(filter(None, files), None)
    found = {} if file is None else _accounted(file, _TRANSFORMER)
    for key in ("max_seq_length", "document_length", "query_length"):
        length = found.get(key)
        if length is not None and (type(length) is not int or length < 1):
            raise unfit(file, key, "a positive int", length)
    return found


def _length(found, tokenizer_config):
    """Read how many tokens a text may have.

    Without a limit it is a number that is larger than every model's.
    """
    length = found.get("max_seq_length")
    length = tokenizer_config.get("model_max_length") if length is None else length
    # Tokenizers without a limit have 10^30 there.
    return length if type(length) is int and 5 <= length < _LONGEST else _LONGEST


def truncation(source: CheckpointSource) -> dict[str, str]:
    """Read whether a long text loses its start, and make a preprocessor's argument."""
    side = source.tokenizer_config.get("truncation_side") or "right"
    if side not in ("right", "left"):
        where = os.path.join(source.path, huggingface.TOKENIZER_CONFIG)
        raise unfit(where, "truncation_side", "'right' or 'left'", side)
    return {"truncate": "start"} if side == "left" else {}


def export(model: Model, path: Path, mode: str) -> None:
    """Write a folder that `SentenceTransformer` loads.

    See `TextEmbedder.export_to_sentence_transformers`.

    Args:
        model: a `TextEmbedder`.
        path: path of the folder to write.
        mode: a key of `POOLINGS`.
    """
    pooling = {
        "word_embedding_dimension": model.backbone.hidden_dim,
        **{flag: ours == mode for ours, flag in _FLAGS.items()},
        "include_prompt": True,
    }
    modules: list[tuple[str, dict[str, Any]]] = [("Pooling", pooling)]
    if model.projection is not None and not model.projection_in_training_only:
        projection = {
            "in_features": model.backbone.hidden_dim,
            "out_features": model.projection_dim,
            "bias": model.projection_bias,
            "activation_function": _ACTIVATIONS[model.projection_activation],
        }
        modules.append(("Dense", projection))
    if model.normalize:
        modules.append(("Normalize", {}))
    types = dict.fromkeys(("Transformer", "Pooling", "Dense", "Normalize"), _TYPES)
    facts = {"similarity_fn_name": "cosine", "prompts": _prompts_of(model)}
    if model.truncate_dim is not None:
        facts["truncate_dim"] = model.truncate_dim
    _write_folder(model, model.backbone, path, types, modules, facts)


def export_sparse(model: Model, path: Path) -> None:
    """Write a folder that the `SparseEncoder` of `sentence-transformers` loads.

    See `SparseEncoder.export_to_sentence_transformers`.
    """
    pooling = {
        "pooling_strategy": model.pooling,
        "activation_function": model.activation,
        "embedding_dimension": model.backbone.vocabulary_size,
    }
    modules = [("SpladePooling", pooling)]
    types = dict.fromkeys(("MLMTransformer", "SpladePooling"), _SPARSE_TYPES)
    facts = {
        "similarity_fn_name": "dot",
        "model_type": "SparseEncoder",
        "prompts": _prompts_of(model),
    }
    _write_folder(model, model, path, types, modules, facts)


def _prompts_of(model):
    """Give prompts by the names that sentence-transformers looks up first."""
    prompts, before = dict(model.prompts), model.prompt_of("passage")
    return {**prompts, "document": before} if before else prompts


def export_tokens(model: Model, path: Path) -> None:
    """Write a folder that the `MultiVectorEncoder` of `sentence-transformers` loads.

    See `LateInteraction.export_to_sentence_transformers`.
    """
    ports = dict.fromkeys(_PORTS, "token_embeddings")
    projection = {
        "in_features": model.backbone.hidden_dim,
        "out_features": model.projection_dim,
        "bias": False,
        "activation_function": _ACTIVATIONS[None],
        **ports,
    }
    told = late_interaction.exported(model.preprocessor)
    skipped = {
        "skiplist_words": told.pop("skiplist_words"),
        "keep_only_token_ids": None,
    }
    modules = [
        ("Dense", projection),
        ("MultiVectorMask", {**skipped, "skiplist_tasks": ["document"]}),
        ("Normalize", ports),
    ]
    base = "sentence_transformers.base.modules"
    types = {
        "Transformer": f"{base}.transformer",
        "Dense": f"{base}.dense",
        "MultiVectorMask": _TOKEN_TYPES,
        "Normalize": f"{base}.normalize",
    }
    lengths = {name: told.pop(name) for name in late_interaction.LENGTHS}
    facts = {"similarity_fn_name": "maxsim", "model_type": "MultiVectorEncoder", **told}
    _write_folder(model, model.backbone, path, types, modules, facts, lengths)


def _write_folder(model, exported, path, types, modules, facts, lengths=None):
    """Write a folder of a Transformer, the modules behind it, and their list.

    Args:
        model: a task.
        exported: the model that becomes the Transformer: the task, or its backbone.
        path: path of the folder to write.
        types: dict from classes to the modules of Python that have them, with the
            Transformer's class first.
        modules: list of pairs of a module's class and its config.
        facts: dict of further keys of `config_sentence_transformers.json`.
        lengths: dict of further keys of `sentence_bert_config.json`.
    """
    backbone, preprocessor = model.backbone, model.preprocessor
    if preprocessor is None:
        raise ValueError(
            "`export_to_sentence_transformers` needs a task with a preprocessor, as it "
            "also writes the tokenizer. Received: preprocessor=None."
        )
    truncate = getattr(preprocessor, "truncate", "end")
    if truncate == "middle":
        raise ValueError(
            "`truncate` must be 'end' or 'start' in a folder of sentence-transformers. "
            "Received: truncate='middle'."
        )
    from safetensors.numpy import save_file

    longest = getattr(backbone, "max_sequence_length", None) or 2**31
    length = min(preprocessor.sequence_length, longest)
    kind, where = next(iter(types.items()))
    listed = [{"path": "", "type": f"{where}.{kind}"}]
    with write_aside(path) as folder:
        exporting.export_to_transformers(exported, folder, preprocessor.tokenizer)
        told = {"truncation_side": "left"} if truncate == "start" else {}
        if preprocessor.layout == BARE:  # GPT-2's, which pads with another token
            pad = preprocessor.tokenizer.pad_token_id
            told["pad_token"] = preprocessor.tokenizer.id_to_token(pad)
        if told:
            file = os.path.join(folder, huggingface.TOKENIZER_CONFIG)
            _write(file, {**parsing.read_json(file), **told})
        for number, (kind, config) in enumerate(modules, 1):
            name = f"{number}_{kind}"
            listed.append({"path": name, "type": f"{types[kind]}.{kind}"})
            os.mkdir(os.path.join(folder, name))
            _write(os.path.join(folder, name, "config.json"), config)
            if kind == "Dense":
                found = exporting.collect_tensors(model, PROJECTION, backbone)
                found = {f"linear.{n.partition('.')[2]}": a for n, a in found.items()}
                weights = os.path.join(folder, name, "model.safetensors")
                save_file(found, weights, metadata={"format": "pt"})
        listed = [{"idx": k, "name": str(k), **x} for k, x in enumerate(listed)]
        _write(os.path.join(folder, MODULES), listed)
        config = {"max_seq_length": length, "do_lower_case": False}
        _write(os.path.join(folder, _TRANSFORMER), {**config, **(lengths or {})})
        _write(os.path.join(folder, PROMPTS), {"default_prompt_name": None, **facts})


def _write(path: Path, content: Mapping[str, Any] | list[Any]) -> None:
    text = json.dumps(content, indent=2)
    pathlib.Path(path).write_text(text + "\n", "utf-8")
