"""What layers were made with is refused later: it would change the config alone."""

import pytest

from keras_bertfam import tasks
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.models import EncoderBackbone
from tests import tiny_fine_tuning as tiny


@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_of_a_backbone(family):
    backbone = tiny.make_backbone(family, dropout=0.2)
    for name, value in (("dropout", 0.9), ("attention_dropout", 0.9), ("num_heads", 4)):
        before = getattr(backbone, name)
        with pytest.raises(ValueError, match=rf"`{name}` .*{name}={before}.* {value}"):
            setattr(backbone, name, value)
        assert backbone.get_config()[name] == before
    backbone.dropout = 0.2  # as it is
    backbone.trainable = False
    backbone.note = "any other attribute"


def test_of_tasks():
    backbone = tiny.make_backbone(num_layers=1)
    classifier = tasks.TextClassifier(backbone, num_classes=2, dropout=0.2)
    answers = tasks.SpanQuestionAnswering(backbone)
    for model, name, value in (
        (classifier, "dropout", 0.9),
        (classifier, "head_style", "linear"),
        (classifier, "num_classes", 3),
        (tasks.TokenClassifier(backbone, num_classes=2), "dropout", 0.9),
        (answers, "end_head", "conditional"),
    ):
        before = model.get_config()
        with pytest.raises(ValueError, match=f"`{name}` must be given to the"):
            setattr(model, name, value)
        assert model.get_config()[name] == before[name]
    answers.null_threshold = 0.5  # is read when it answers


def test_of_a_subclass_that_sets_what_its_base_has_set():
    class Own(EncoderBackbone):
        def __init__(self, dropout=0.1, **kwargs):
            super().__init__(dropout=dropout, **kwargs)
            self.dropout = dropout

    sizes = dict(vocabulary_size=9, hidden_dim=8, intermediate_dim=8)
    own = Own(num_layers=1, num_heads=2, dropout=0.3, **sizes)
    assert own.get_config()["dropout"] == 0.3


def test_of_a_dropout_layer():
    with pytest.raises(AttributeError, match="rate"):
        Dropout(0.1).rate = 0.9
