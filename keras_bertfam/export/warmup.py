"""Warm-up requests for TensorFlow Serving."""

import os
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from keras_bertfam.types import Path

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
