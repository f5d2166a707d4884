import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import (
    BertBackbone,
    DistilBertBackbone,
    EncoderBackbone,
    RobertaBackbone,
)
from keras_bertfam.models.families.distilbert import copy_layers, teacher_layers

COUNTS = {
    "distil_bert_base_en_uncased": 66_362_880,
    "distil_bert_base_en": 65_190_912,
    "distil_bert_base_multi": 134_734_080,
    # Published as 82,118,400, with one row of segments and a pooler.
    "distil_roberta_base_en": 82_118_400 - 768 - (768 * 768 + 768),
}


def test_every_size_is_checked():
    assert set(DistilBertBackbone.presets_table) == set(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts(name):
    sizes = DistilBertBackbone.presets_table[name]
    assert DistilBertBackbone.parameter_count(**sizes) == COUNTS[name]


def test_teacher_layers():
    assert teacher_layers(12) == [0, 2, 4, 7, 9, 11]
    assert teacher_layers(24)[0] == 0 and teacher_layers(24)[-1] == 23
    assert teacher_layers(4, 4) == [0, 1, 2, 3]
    assert teacher_layers(1) == [0]
    with pytest.raises(ValueError, match="num_layers=2. Received: 3"):
        teacher_layers(2, 3)


def arrays(layer):
    return [ops.convert_to_numpy(w) for w in layer.weights]


def assert_equal(ours, theirs):
    for one, two in zip(arrays(ours), arrays(theirs), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("family", [BertBackbone, RobertaBackbone])
def test_a_student_begins_as_layers_of_its_teacher(family):
    teacher = family(20, 4, 2, 16, 24, embedding_dim=8)
    student = DistilBertBackbone.from_teacher(teacher, layers=[0, 3], dropout=0.3)
    assert (student.num_layers, student.num_segments, student.dropout) == (2, 0, 0.3)
    assert student.pooler is None
    for name in ("token_embedding", "norm", "projection"):
        assert_equal(
            getattr(student.embeddings, name), getattr(teacher.embeddings, name)
        )
    np.testing.assert_array_equal(
        ops.convert_to_numpy(student.embeddings.position_table),
        ops.convert_to_numpy(teacher.embeddings.position_table),
    )
    for index, layer in enumerate([0, 3]):
        for one, two in zip(
            student.encoder.block(index), teacher.encoder.block(layer), strict=True
        ):
            assert_equal(one, two)
    assert DistilBertBackbone.from_config(student.get_config()).get_config() == (
        student.get_config()
    )


def test_all_layers_without_segments_compute_the_same():
    teacher = EncoderBackbone(20, 3, 2, 16, 24, share="all", norm_first=True)
    student = DistilBertBackbone.from_teacher(teacher, layers=range(3))
    inputs = {"token_ids": np.array([[1, 2, 3]])}
    np.testing.assert_allclose(
        ops.convert_to_numpy(student(inputs)["sequence_output"]),
        ops.convert_to_numpy(teacher(inputs)["sequence_output"]),
        atol=1e-6,
    )


def test_errors():
    teacher = EncoderBackbone(20, 2, 2, 16, 24)
    student = EncoderBackbone(20, 2, 2, 8, 24)
    with pytest.raises(ValueError, match="widths.*20, 16.*Received: .*20, 8"):
        copy_layers(teacher, student)
    with pytest.raises(ValueError, match=r"2 layers.*Received: \[0\]"):
        copy_layers(teacher, student, [0])
    with pytest.raises(ValueError, match=r"\[0, 2\). Received: \[1, 2\]"):
        copy_layers(teacher, student, [1, 2])
