"""Reads and writes files of SentencePiece models with every release of protobuf.

The classes in `sentencepiece` need the release of protobuf that generated them, or a
later one. Apache Beam needs an older one. Fields that aren't described here stay in a
file unchanged, like all unknown fields of protobuf.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Fields of `sentencepiece_model.proto`: message, field, number, type, and the field's
# message type or default.
_FIELDS = (
    ("Piece", "piece", 1, "STRING", None),
    ("Piece", "score", 2, "FLOAT", None),
    ("Piece", "type", 3, "INT32", "1"),
    ("TrainerSpec", "model_type", 3, "INT32", "1"),
    ("TrainerSpec", "treat_whitespace_as_suffix", 24, "BOOL", None),
    ("TrainerSpec", "byte_fallback", 35, "BOOL", None),
    ("TrainerSpec", "unk_id", 40, "INT32", None),
    ("NormalizerSpec", "precompiled_charsmap", 2, "BYTES", None),
    ("NormalizerSpec", "add_dummy_prefix", 3, "BOOL", "true"),
    ("NormalizerSpec", "remove_extra_whitespaces", 4, "BOOL", "true"),
    ("NormalizerSpec", "escape_whitespaces", 5, "BOOL", "true"),
    ("ModelProto", "pieces", 1, "MESSAGE", "Piece"),
    ("ModelProto", "trainer_spec", 2, "MESSAGE", "TrainerSpec"),
    ("ModelProto", "normalizer_spec", 3, "MESSAGE", "NormalizerSpec"),
)
_PACKAGE = "keras_bertfam.pieces"

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = range(1, 6)
# Values of a trainer's `model_type`.
UNIGRAM, BPE = 1, 2


def _model_class():
    file: Any = descriptor_pb2.FileDescriptorProto(
        name="keras_bertfam/pieces.proto", package=_PACKAGE, syntax="proto2"
    )
    messages: dict[str, Any] = {}
    for message, name, number, kind, of in _FIELDS:
        if message not in messages:
            messages[message] = file.message_type.add(name=message)
        field = messages[message].field.add(
            name=name,
            number=number,
            type=getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{kind}"),
            label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
        )
        if kind == "MESSAGE":
            field.type_name = f".{_PACKAGE}.{of}"
        elif of is not None:
            field.default_value = of
        if name == "pieces":
            field.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName(f"{_PACKAGE}.ModelProto")
    return message_factory.GetMessageClass(descriptor)


PieceModel: Any = _model_class()
