"""DistilBERT, and students that begin with some of their teacher's layers."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.distilbert import DISTILBERT
from keras_bertfam.types import Model


@keras.saving.register_keras_serializable("keras_bertfam")
class DistilBertBackbone(EncoderBackbone):
    """DistilBERT encoder: half of BERT's layers, no segments, no pooler.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. DistilBERT's own values
            are those of `EncoderBackbone`: `activation="gelu"` (erf),
            `layer_norm_epsilon=1e-12`, `dropout=0.1`.

    Inputs and outputs are those of `EncoderBackbone`.

    `from_preset()` knows the sizes of the released models:
    `distil_bert_base_en_uncased`, `distil_bert_base_en`, `distil_bert_base_multi`
    and DistilRoBERTa, `distil_roberta_base_en`.

    Reference: [Sanh et al., 2019](https://arxiv.org/abs/1910.01108), section 3.

    Example:

    ```python
    teacher = keras_bertfam.models.BertBackbone(
        vocabulary_size=100, num_layers=4, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    student = keras_bertfam.models.DistilBertBackbone.from_teacher(teacher)
    student.num_layers  # 2
    ```
    """

    record = DISTILBERT

    @classmethod
    def from_teacher(
        cls, teacher: Model, layers: Sequence[int] | None = None, **kwargs: Any
    ) -> "DistilBertBackbone":
        """Build a student with a teacher's widths and some of its layers.

        The student has the teacher's token and position tables, its embeddings'
        norm and projection, and the given layers. Segments and pooler are left
        out.

        Args:
            teacher: `EncoderBackbone`.
            layers: sequence of ints, the layers to take, from 0; see
                `teacher_layers` for the default.
            **kwargs: arguments of the constructor to override, such as `dropout`.

        Returns:
            A backbone of this class.

        Raises:
            ValueError: for a layer that the teacher doesn't have.
        """
        return student_of(teacher, cls, layers, **kwargs)


def student_of(
    teacher: Model, cls: Any, layers: Sequence[int] | None = None, **kwargs: Any
) -> Model:
    """Make a student with a teacher's widths that begins with some of its layers.

    The student has no segments and no pooler, and shares no layers.

    Args:
        teacher: `EncoderBackbone`.
        cls: the student's class.
        layers: sequence of ints; see `teacher_layers` for the default.
        **kwargs: arguments of the constructor to override.

    Returns:
        A backbone.

    Raises:
        ValueError: for a layer that the teacher doesn't have.
    """
    layers = teacher_layers(teacher.num_layers) if layers is None else layers
    pruned = dict(enumerate(teacher.pruned_heads or ()))
    by_layer = ("attention_window", "attention_dilation")
    seen = {name: getattr(teacher, name) for name in by_layer}
    config = {
        **teacher.get_config(),
        "num_layers": len(layers),
        "pruned_heads": [pruned.get(layer, ()) for layer in layers],
        **{name: [all_[k] for k in layers] for name, all_ in seen.items() if all_},
        "num_segments": 0,
        "pooler": False,
        "share": "none",
        "num_groups": 1,
        "trainable": True,
        **kwargs,
    }
    if "name" not in kwargs:
        del config["name"]
    student = cls.from_config(config)
    copy_layers(teacher, student, layers)
    return student


@checked
def teacher_layers(num_layers: int, count: int | None = None) -> list[int]:
    """List the layers of a teacher that a student begins with.

    They are spread evenly from the first to the last. For 12 and 6 layers they are the
    same as in the released code.

    Args:
        num_layers: int, the teacher's number of layers.
        count: int, the student's number of layers. Defaults to half of the teacher's.

    Returns:
        List of ints.

    Example:

    ```python
    from keras_bertfam.models.families.distilbert import teacher_layers
    teacher_layers(12)  # [0, 2, 4, 7, 9, 11]
    ```
    """
    count = max(1, num_layers // 2) if count is None else count
    if not 1 <= count <= num_layers:
        raise ValueError(
            f"`count` must be between 1 and num_layers={num_layers}. Received: {count}."
        )
    return [round(i * (num_layers - 1) / max(1, count - 1)) for i in range(count)]


def copy_layers(
    teacher: Model, student: Model, layers: Sequence[int] | None = None
) -> None:
    """Copy embeddings and chosen layers of a teacher into a student.

    Segment table and pooler aren't copied. A layer that the teacher shares is copied to
    each place where it is used.

    Args:
        teacher: `EncoderBackbone`.
        student: `EncoderBackbone` of the same widths, whose weights change.
        layers: sequence of ints, a teacher's layer for each of the student's;
            `teacher_layers(teacher.num_layers, student.num_layers)` by default.

    Raises:
        ValueError: if `layers` has other numbers than the teacher's layers, or not as
            many as the student has; or if a weight has another shape.
    """
    if layers is None:
        layers = teacher_layers(teacher.num_layers, student.num_layers)
    if len(layers) != student.num_layers or not all(
        0 <= layer < teacher.num_layers for layer in layers
    ):
        raise ValueError(
            f"`layers` must be {student.num_layers} layers of the teacher, each in "
            f"[0, {teacher.num_layers}). Received: {list(layers)}."
        )
    if teacher.embeddings.token_embedding.computed is not None:
        raise ValueError(
            "`teacher` must have its own embedding tables. `copy_discriminator()` of "
            "its task makes a copy with them. Received: a backbone whose token table "
            "is a sum."
        )
    for source, target in _parts(teacher, student, layers):
        source, target = _variables(source), _variables(target)
        shapes = [[tuple(v.shape) for v in variables] for variables in (source, target)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                "`student` must have the teacher's widths. Expected weights of the "
                f"shapes {shapes[0]}. Received: {shapes[1]}."
            )
        for old, new in zip(source, target, strict=True):
            new.assign(keras.ops.copy(old))  # JAX would share the buffer


def _parts(teacher, student, layers):
    """Give pairs of layers or variables: what is copied, and to where."""
    names = ["token_embedding", "position_table", "norm", "projection"]
    if student.num_languages:
        names.append("language_table")
    for name in names:
        yield tuple(getattr(b.embeddings, name) for b in (teacher, student))
    for name in ("final_norm", "relative_bias", "relative_table", "convolution"):
        yield tuple(getattr(b.encoder, name) for b in (teacher, student))
    for index, layer in enumerate(layers):
        yield from zip(
            teacher.encoder.block(layer), student.encoder.block(index), strict=True
        )


def _variables(part):
    if part is None:
        return []
    # A layer's `weights` leave out the seeds of its dropout.
    return part.weights if isinstance(part, keras.layers.Layer) else [part]
