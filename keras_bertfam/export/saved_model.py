"""Write SavedModels with string inputs."""

import dataclasses
import json
import os
import tempfile
from collections.abc import Iterable
from typing import Any

import keras
import keras_hub
import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.export import (  # noqa: F401
    generation_signatures,
    task_signatures,
    word_signatures,
)
from keras_bertfam.export.signatures import serving_signatures
from keras_bertfam.models.base import TokenBackbone
from keras_bertfam.models.decoder import DecoderBackbone
from keras_bertfam.models.encoder_decoder import EncoderDecoderBackbone
from keras_bertfam.models.exported import run_with_tensorflow
from keras_bertfam.models.features import FeatureBackbone
from keras_bertfam.presets import folders, inspection, preset_checks
from keras_bertfam.presets.inspection import check_export_paths
from keras_bertfam.tasks.generation.causal_lm import CausalLM
from keras_bertfam.tasks.generation.defaults import (
    default_length,
    default_settings,
    merged,
    with_defaults,
)
from keras_bertfam.tasks.generation.prompts import first_token_ids
from keras_bertfam.tasks.generation.samplers import as_sampler
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.tasks.generation.text_to_text import TextToText
from keras_bertfam.tasks.masking.masked_lm import FillMask, MaskedLM
from keras_bertfam.tasks.recurrent.bidirectional_lm import BidirectionalLM
from keras_bertfam.tasks.recurrent.recurrent_lm import RecurrentLM
from keras_bertfam.tasks.retrieval.retriever import Retriever
from keras_bertfam.types import Model, Path

_EXPORT = """
import json, sys
from keras_bertfam.export import export_saved_model
preset, path, options = sys.argv[1:]
export_saved_model(preset, path, **json.loads(options))
"""

_TOP_K = 5
_OF_WRITING = "max_length", "sampler", "stop_token_ids", "settings"


@checked
def export_saved_model(
    model: Model | Path,
    path: Path,
    top_k: int = _TOP_K,
    max_length: int | None = None,
    sampler: Any = None,
    stop_token_ids: Any = "auto",
    settings: GenerationSettings | dict[str, Any] | None = None,
    max_input_tokens: int | None = None,
    verify: bool = True,
) -> Path:
    """Write a SavedModel that takes strings, for TensorFlow Serving.

    The tokenizer is part of the graph, so a process can load the result with only
    `tensorflow` and `tensorflow_text`. Batch and length are dynamic.

    A backbone, and a task with `fill_mask` such as `MaskedLM`, gets two signatures with
    the same outputs:

    - `serving_default` takes `text`, string `(batch,)`;
    - `token_ids` takes `token_ids`, int32 `(batch, length)`; it reads the first
      `max_input_tokens`. For a backbone with `num_languages` it also takes
      `language_ids` of that shape, -1 for no language. Positions count from 0.

    Texts may be marked by `layers.mark_languages`. They are then read as by
    `fill_mask`: with the languages that the preprocessor knows, and with positions that
    begin anew in a translation.

    A task with `fill_mask` has these outputs for the mask tokens of each row, in order.
    `count` is the largest number of masks in a row; rows with fewer masks are filled up
    with -1, `""` and 0.

    - `mask_positions`, int32 `(batch, count)`;
    - `predicted_ids`, int32 `(batch, count, top_k)`;
    - `predicted_tokens`, string `(batch, count, top_k)`;
    - `probabilities`, float32 `(batch, count, top_k)`.

    A backbone has the outputs `sequence_output`, `padding_mask` and, if it has a
    pooler, `pooled_output`. A `DecoderBackbone` and Transformer-XL's backbone take the
    inputs of `CausalLM`.

    `CausalLM`, `RecurrentLM` and `TextToText` write texts as their `generate` does,
    with the whole loop in the graph:

    - `serving_default` takes `text`, string `(batch,)`, prompts of any lengths;
    - `token_ids` takes `token_ids`, int32, and `padding_mask`, bool, `(batch,
      length)`;

    Their outputs are `text`, string `(batch,)`, and `token_ids`, int32, and
    `padding_mask`, bool, `(batch, max_length)`; for `TextToText` without the tokens
    that texts begin with. If the settings ask for several texts, all outputs have an
    axis for them after the batch's. If they ask for scores, there is the output
    `scores`, float32. An input with more than `max_input_tokens` is cut to its last
    tokens, for `TextToText` to its first ones. A row without tokens or with unknown ids
    has the text `""` and a `padding_mask` of `False`; it doesn't affect other rows. A
    sampler's random numbers continue from call to call, and are the same in every
    process.

    ELMo, alone, in `BidirectionalLM` or in a `FeatureBackbone`, has two signatures:
    `serving_default` takes `text`, and `words` takes `words`, string `(batch, words)`,
    filled up with `""`. All have the output `words`, the text's words between `<S>` and
    `</S>`. The backbone also gives `padding_mask`, `sequence_output` and
    `hidden_states`, float32 `(batch, num_layers + 1, length, hidden_dim)`; a
    `FeatureBackbone` gives no `hidden_states`. `BidirectionalLM` gives
    `forward_log_probabilities` and `backward_log_probabilities`, float32 `(batch,
    length)`: of each word given those before it, and given those after it; 0 for the
    first word of a direction and for padding.

    Fine-tuning tasks have these inputs and outputs:

    - `TextClassifier`: `text`, or in the signature `pairs` `text` and
      `text_pair`, string `(batch,)`; outputs `probabilities`, float32 `(batch,
      num_classes)`, `label_ids`, int32 `(batch,)`, and `labels`, string; with
      `multi_label` the last two are `(batch, num_classes)`, with -1 and `""` for a
      class that the text doesn't have;
    - `TextRegressor`: the same inputs; `scores`, float32 `(batch,)`;
    - `CrossEncoder`: `query` and `passage`, string `(batch,)`; `scores`, float32
      `(batch,)`;
    - `TokenClassifier`: `words`, string `(batch, words)`, filled up with `""`;
      as `TextClassifier`, by word, with -1 and `""` where there is none. Sentences
      longer than a row are labelled in parts, as `tag` does;
    - `DependencyParser`: `words`, the same; `heads`, int32 `(batch, words)`, the best
      of each word, which needn't make a tree, -1 where there is no word or no room,
      and `relations`, string;
    - `RelationClassifier`: `text`, string `(batch,)`, `first` and `second`, int32
      `(batch, 2)`, in characters; as `TextClassifier`;
    - `MultipleChoice`: `context`, `question` (`""` for none), string `(batch,)`, and
      `choices`, string `(batch, choices)`; `probabilities`, float32 `(batch,
      choices)`, and `choice`, int32 `(batch,)`;
    - `TextEmbedder` and `SparseEncoder`: `text`; `embeddings`, float32 `(batch,
      width)`;
    - `SpanQuestionAnswering`: `question` and `context`, string `(batch,)`; outputs
      `answer`, string `(batch,)`, `""` for none, `answer_start` and `answer_end`,
      int32, in characters, -1 for none, `no_answer_odds`, float32, and
      `n_best_text`, `n_best_start`, `n_best_end`, `n_best_score`, `(batch, n_best)`.

    `DualEncoder` has two signatures: `serving_default` takes queries as `text`;
    `passages` takes `title`, `""` for none, and `text`, string `(batch,)`. Both give
    `embeddings`, float32 `(batch, width)`. Texts longer than a row are cut.

    Fine-tuning tasks also have the signature `token_ids`, for rows from their
    preprocessors: `token_ids` and, if the backbone has segments or languages,
    `segment_ids` or `language_ids`, int32 `(batch, length)`, with the same outputs.
    With ELMo it takes `character_ids`, int32 `(batch, length, max_characters)`. Here
    `TokenClassifier` has outputs for each token. `DependencyParser` also takes
    `word_positions` and `word_mask`, bool; `RelationClassifier` also takes
    `word_positions`. Rows of `MultipleChoice` are `(batch, choices, length)`.
    `SpanQuestionAnswering` also takes `span_mask` and `start_mask`, bool, and gives
    `starts`, `ends`, `scores` `(batch, n_best)` and `no_answer`, in tokens.

    Warm-up requests for TensorFlow Serving are in `assets.extra`.

    Args:
        model: task with a preprocessor, or the path of a preset directory of a
            task, or of a backbone with a tokenizer. Any backend may have trained
            it. TensorFlow writes the result, in another process if it isn't the current
            backend.
        path: str. The directory to make, such as `"served/1"`.
        top_k: int. How many tokens to predict for each mask token.
        max_length: int or `None`. The most tokens of a text that is written, as in
            `generate`. Defaults to the value of the task's `generation`, or else to the
            length of the preprocessor's rows, or the positions if they are fewer.
        sampler: name or `keras_hub.samplers.Sampler`, as in `generate`.
        stop_token_ids: as in `generate`, the same for all texts.
        settings: `keras_bertfam.tasks.GenerationSettings`, or a dict of some of its
            arguments, which replace those of the task's `generation`, as in `generate`.
        max_input_tokens: int or `None`. The most tokens that tasks that write texts,
            and decoders without a task, read of a text; the most words that ELMo reads.
            Other models read the most tokens of a row of ids; of a text they read as
            many as their preprocessor's rows have. Defaults to the length of such rows,
            or to the room that `max_length` leaves; for ELMo to 1024 words.

        verify: bool. Whether the result is opened, and its signatures called with the
            warm-up requests, before it is moved to `path`.

    Returns:
        `path`.

    Raises:
        RuntimeError: if TensorFlow can't open the result, or fails in its own process;
            the message has the reason.
        ValueError: if `path` exists, the model has no tokenizer, or an argument is out
            of its range.
        TypeError: for a model of a kind that can't be exported.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    keras_bertfam.export.export_saved_model(model, "served/1")
    served = tf.saved_model.load("served/1").signatures["serving_default"]
    served(text=tf.constant(["The capital of France is [MASK]."]))
    ```
    """
    check_export_paths(model, path)
    given = {
        "top_k": None if top_k == _TOP_K else top_k,
        "max_length": max_length,
        "sampler": sampler,
        "stop_token_ids": None if isinstance(stop_token_ids, str) else stop_token_ids,
        "settings": settings,
        "max_input_tokens": max_input_tokens,
    }
    if not isinstance(model, (str, os.PathLike)):
        _check_used(model, given)
    numbers = (top_k, max_length, max_input_tokens)
    top_k, max_length, max_input_tokens = map(_without_numpy, numbers)
    checked_settings = _checked_settings(model, settings)
    if isinstance(stop_token_ids, int | np.integer):
        stop_token_ids = [int(stop_token_ids)]
    stops = () if stop_token_ids is None else stop_token_ids
    if not isinstance(stops, str) and any(map(np.ndim, stops)):
        raise ValueError(
            "`stop_token_ids` must be the same for all texts of a SavedModel. "
            f"Received: stop_token_ids={stop_token_ids!r}."
        )
    options = {
        "top_k": top_k,
        "max_length": max_length,
        "sampler": _checked_sampler(sampler, checked_settings),
        "stop_token_ids": stop_token_ids,
        "settings": settings,
        "max_input_tokens": max_input_tokens,
        "verify": verify,
    }
    if keras.backend.backend() == "tensorflow":
        model, preprocessor = _load(model)
        _check_used(model, given)
        options |= _with_defaults(model, max_length, sampler, settings)
        with folders.write_aside(path) as folder:
            _write(model, preprocessor, folder, **options)
    elif isinstance(model, (str, os.PathLike)):
        _export_in_tensorflow(model, path, options)
    else:
        with tempfile.TemporaryDirectory() as folder:
            preset = os.path.join(folder, "preset")
            model.save_to_preset(preset)
            _export_in_tensorflow(preset, path, options)
    return path


def _check_used(model, given):
    """Raise a `ValueError` for options that a kind of model has no use for."""
    used = dict.fromkeys(_OF_WRITING, (CausalLM, RecurrentLM, TextToText))
    used["top_k"] = (FillMask,)
    for name, value in given.items():
        if name == "max_input_tokens":
            is_used = not isinstance(model, Retriever)
        else:
            is_used = isinstance(model, used[name])
        if value is not None and not is_used:
            raise ValueError(
                f"`{name}` must be left out for a {type(model).__name__}, which has no "
                f"use for it. Received: {value}."
            )


def _checked_settings(model, settings):
    """Check settings early; some values go together only with those of the task."""
    if not isinstance(settings, dict):
        return settings
    if hasattr(model, "generation"):
        return merged(settings, default_settings(model.generation))
    known = {field.name for field in dataclasses.fields(GenerationSettings)}
    if unknown := [*settings.keys() - known]:
        raise TypeError(
            f"`settings` must have keys among {sorted(known)}. Received: {unknown}."
        )
    return None


def _checked_sampler(sampler, settings):
    """Check a sampler; a name stays one, as its numbers are those of the task."""
    if sampler is None:
        return None
    by_name = isinstance(sampler, str)
    found = as_sampler(sampler, None if by_name else settings)
    return sampler if by_name else found


def _with_defaults(model, max_length, sampler, settings):
    """Fill in options from a task's `generation`."""
    usual = dict(getattr(model, "generation", {}))
    goes_on = not isinstance(model, TextToText)
    begun = 0 if goes_on else len(first_token_ids(model))
    said = usual.keys() & {"max_length", "max_new_tokens"}
    # The signature counts new tokens from the end of the prompts.
    if max_length is None and said and not (goes_on and "max_new_tokens" in said):
        max_length = default_length(usual, begun)
    sampler, settings = with_defaults(sampler, settings, usual)
    return {
        "max_length": max_length,
        "sampler": as_sampler(sampler, settings),
        "settings": settings,
    }


def _load(model):
    """Load the model, and the preprocessor that tokenises for it."""
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        model, preprocessor = folders.read_whole(path, lambda: _load_preset(path))
    else:
        preprocessor = getattr(model, "preprocessor", None)
    if preprocessor is None:
        raise ValueError(
            "`model` must have a preprocessor with a tokenizer, or be a preset "
            f"directory with one. Received: {model}."
        )
    return model, preprocessor


def _load_preset(path):
    config = preset_checks.read_json(path, preset_checks.TASK_FILE)
    if config is not None:
        cls = keras.saving.get_registered_object(config["registered_name"])
        model = cls.from_preset(path)
        return model, model.preprocessor
    backbone = TokenBackbone.from_preset(path)
    preprocessor = preset_checks.load_serialized(path, preset_checks.PREPROCESSOR_FILE)
    if preprocessor is None:
        tokenizer = preset_checks.load_serialized(path, inspection.TOKENIZER_FILE)
        usual = default_task(backbone).default_preprocessor
        preprocessor = tokenizer and usual(tokenizer, backbone)
    return backbone, preprocessor


def _write(model, preprocessor, folder, verify, **options):
    signatures = serving_signatures(model, preprocessor, **options)
    module = tf.Module()
    # The weights without the optimizer's, the random states, and the tokenizer's
    # tables.
    variables = [*model.variables, *options["sampler"].variables]
    module.weights = [variable.value for variable in variables]
    module.tokenizer = preprocessor.tokenizer
    functions = {name: each.concrete() for name, each in signatures.items()}
    tf.saved_model.save(module, folder, functions)
    requests = [(name, each.example) for name, each in signatures.items()]
    write_warmup_requests(folder, requests)
    if verify:
        _check_answers(folder, signatures)


def _check_answers(folder, signatures):
    """Call the signatures of a written SavedModel with their examples."""
    try:
        served = tf.saved_model.load(folder).signatures
        for name, each in signatures.items():
            inputs = {
                key: tf.constant(value, each.inputs[key].dtype)
                for key, value in each.example.items()
            }
            served[name](**inputs)
    except Exception as error:  # an error of any operation in the graph
        raise RuntimeError(
            "TensorFlow can't run the SavedModel that it has written, so it is "
            f"deleted; verify=False keeps it. {type(error).__name__}: {error}"
        ) from error


def _export_in_tensorflow(preset, path, options):
    stop, sampler = options["stop_token_ids"], options["sampler"]
    as_it_is = stop is None or isinstance(stop, str)
    settings = options.get("settings")
    given = {
        **options,
        "sampler": sampler and keras_hub.samplers.serialize(sampler),
        "stop_token_ids": stop if as_it_is else [*map(int, stop)],
        "settings": dataclasses.asdict(settings)
        if isinstance(settings, GenerationSettings)
        else settings,
    }
    run_with_tensorflow(
        _EXPORT,
        os.fspath(preset),
        os.fspath(path),
        json.dumps(given, default=_without_numpy),
    )


def _without_numpy(number):
    return number.item() if isinstance(number, np.generic) else number


def default_task(backbone: Model) -> Any:
    """Give the class of a task that takes a backbone without a new head.

    Args:
        backbone: any backbone of the library.

    Returns:
        `CausalLM` for a decoder, `TextToText` for an encoder with a decoder,
        `BidirectionalLM` for ELMo, `RecurrentLM` for Transformer-XL, and `MaskedLM` for
        others. A `FeatureBackbone` has the class of its backbone.
    """
    if isinstance(backbone, FeatureBackbone):
        return default_task(backbone.backbone)
    if isinstance(backbone, EncoderDecoderBackbone):
        return TextToText
    for task in (BidirectionalLM, RecurrentLM):
        if isinstance(backbone, task.backbone_cls):
            return task
    return CausalLM if isinstance(backbone, DecoderBackbone) else MaskedLM


WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")

# Field numbers of tensorflow_serving/apis/{prediction_log,predict,model}.proto.
_PREDICT_LOG, _REQUEST, _MODEL_SPEC, _INPUTS = 6, 1, 1, 2
_MODEL_NAME, _SIGNATURE_NAME, _KEY, _VALUE = 1, 3, 1, 2


def write_warmup_requests(
    path: Path,
    requests: Iterable[tuple[str, dict[str, Any]]],
    model_name: str = "keras_bertfam",
) -> None:
    """Write the file that TensorFlow Serving replays before it takes requests.

    The messages have three fields each, so they are encoded here rather than
    with `tensorflow-serving-api`, which needs one exact TensorFlow.

    Args:
        path: directory of the SavedModel.
        requests: list of pairs of a signature's name and a dict of its inputs.
        model_name: str. Name of the model in the requests.
    """
    file = os.path.join(path, WARMUP_FILE)
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with tf.io.TFRecordWriter(file) as writer:
        for signature, inputs in requests:
            spec = _field(_MODEL_NAME, model_name.encode())
            spec += _field(_SIGNATURE_NAME, signature.encode())
            request = _field(_MODEL_SPEC, spec)
            for name, value in inputs.items():
                tensor = tf.make_tensor_proto(value).SerializeToString()
                entry = _field(_KEY, name.encode()) + _field(_VALUE, tensor)
                request += _field(_INPUTS, entry)
            writer.write(_field(_PREDICT_LOG, _field(_REQUEST, request)))


def _field(number, payload):
    """Encode a length-delimited field of the protocol buffer wire format."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value):
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
