"""A real teacher and student, small enough to run anywhere."""

import functools

import keras
import numpy as np

from keras_bertfam.models import DistilBertBackbone
from keras_bertfam.tasks import Distiller, MaskedLM
from tests import tiny_masked_lm as tiny


def make_model(
    student_dim=None, dropout=0.0, moved=True, teacher_dropout=0.0, **kwargs
):
    """A distiller; a `moved` teacher isn't what the student began as."""
    teacher = tiny.make_model(dropout=teacher_dropout)
    backbone = teacher.backbone
    if student_dim is None:
        settings = {"layers": [0], "dropout": dropout}
        student = DistilBertBackbone.from_teacher(backbone, **settings)
    else:
        size = backbone.vocabulary_size
        student = DistilBertBackbone(
            size, 1, 1, student_dim, 8, max_sequence_length=16, dropout=dropout
        )
    for index, variable in enumerate(teacher.weights if moved else ()):
        noise = keras.random.normal(variable.shape, stddev=0.3, seed=index)
        variable.assign_add(noise)
    student = MaskedLM(student, teacher.preprocessor)
    model = Distiller(student, teacher, **kwargs)
    jit_compile = keras.backend.backend() == "jax"
    model.compile(learning_rate=1e-2, jit_compile=jit_compile)
    return model


stream = tiny.stream


@functools.cache
def rows():
    """All 60 rows, masked once: inputs, targets and weights as NumPy arrays."""
    data = tiny.stream(tiny.make_model(), 60, training=False)
    x, y, weights = next(iter(data))
    return {k: np.asarray(v) for k, v in x.items()}, np.asarray(y), np.asarray(weights)
