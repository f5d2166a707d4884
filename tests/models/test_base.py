"""What every backbone refuses, and what tasks read of it."""

import numpy as np
import pytest

from keras_bertfam import tasks
from keras_bertfam.layers.attention.disentangled import DisentangledSelfAttention
from keras_bertfam.layers.blocks.convolution import EmbeddingConvolution
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.models import FeatureBackbone
from tests import tiny_fine_tuning as tiny
from tests.tiny_families import CAUSAL, FAMILIES, IDS, backbone_of, inputs_of, is_pair


@pytest.mark.any_backend
@pytest.mark.parametrize("family", FAMILIES)
def test_positions_of_other_rows(family):
    backbone = backbone_of(family)
    for place in (-1, 8):
        wrong = np.full((4, 1), place)
        with pytest.raises(ValueError, match=r"`positions` must be in \[0, length=8\)"):
            backbone(inputs_of(family), positions=wrong)
        with pytest.raises(ValueError, match=r"`positions` must be in \[0, length=8\)"):
            backbone(inputs_of(family), wrong)
    if family == "XLNet":
        rows = {**inputs_of(family), "perm_ranks": 0 * IDS, "mask_positions": wrong}
        with pytest.raises(ValueError, match=r"`mask_positions` must be in \[0, leng"):
            backbone(rows)


@pytest.mark.any_backend
@pytest.mark.parametrize("family", [f for f in FAMILIES if not is_pair(f)])
def test_a_pooler_that_is_not_there(family):
    backbone = backbone_of(family)
    if backbone.pooler is None:
        with pytest.raises(ValueError, match="`return_pooled` must be false"):
            backbone(inputs_of(family), return_pooled=True)


@pytest.mark.any_backend
@pytest.mark.parametrize("family", [*CAUSAL, "TransformerXL"])
def test_what_calls_with_a_cache_do_not_read(family):
    backbone = backbone_of(family)
    rows = {"token_ids": IDS}
    others = [("positions", np.zeros((4, 1), int)), ("return_hidden_states", True)]
    if family == "TransformerXL":
        others += [("same_length", True), ("memory_length", 3)]
    for name, value in others:
        with pytest.raises(ValueError, match=f"`{name}` must be left out with a `cac"):
            backbone(rows, cache=backbone.empty_cache(4, 8), **{name: value})


@pytest.mark.any_backend
@pytest.mark.parametrize("family", ["DebertaV2", "T5", "XLNet"])
def test_rows_of_any_length(family):
    """Tasks make rows of their usual length for backbones without a longest row."""
    sizes = {} if family == "XLNet" else {"max_sequence_length": None}
    backbone = backbone_of(family, **sizes)
    assert backbone.max_sequence_length is None
    usual = tasks.SpanQuestionAnswering.default_preprocessor
    assert usual(tiny.make_tokenizer(), backbone).sequence_length == 384
    if family == "DebertaV2":
        preprocessor = tasks.TextClassifierPreprocessor(
            tiny.make_tokenizer(), 16, num_classes=2, packed=True
        )
        tasks.TextClassifier(backbone, 2, preprocessor)


@pytest.mark.any_backend
def test_features_have_the_limits_of_their_backbone():
    short = FeatureBackbone(backbone_of("Bert"))
    assert short.max_sequence_length == 12
    longformer = FeatureBackbone(backbone_of("Longformer"))
    assert longformer.max_global_tokens == longformer.backbone.max_global_tokens > 0
    packed = tasks.TextClassifierPreprocessor(
        tiny.make_tokenizer(), 16, num_classes=2, packed=True
    )
    with pytest.raises(ValueError, match="longer than the backbone's positions"):
        tasks.TextClassifier(short, 2, packed)


@pytest.mark.any_backend
def test_an_lstm_reads_no_shared_rows():
    features = FeatureBackbone(backbone_of("Bert"), lstm_dim=4)
    rows = {**inputs_of("Bert"), "sequence_ids": 0 * IDS}
    with pytest.raises(ValueError, match="`sequence_ids` must be left out .* LSTM"):
        features(rows)
    assert "sequence_ids" not in features.input_names
    FeatureBackbone(backbone_of("Bert"))(rows)
    packed = tasks.TextClassifierPreprocessor(
        tiny.make_tokenizer(), 8, num_classes=2, packed=True
    )
    with pytest.raises(ValueError, match="doesn't keep the sequences of a row apart"):
        tasks.TextClassifier(features, 2, packed)


@pytest.mark.any_backend
def test_windows_overlap_in_short_rows():
    backbone = tiny.make_backbone(max_sequence_length=128)
    usual = tasks.SpanQuestionAnswering.default_preprocessor
    made = usual(tiny.make_tokenizer(), backbone)
    assert made.sequence_length == 128
    for length in (16, 24, 67, 128, 200, 384):
        found = usual(
            tiny.make_tokenizer(), tiny.make_backbone(max_sequence_length=length)
        )
        room = length - 3 - found.question_length
        assert 1 <= found.doc_stride <= max(1, room // 2)


@pytest.mark.any_backend
def test_a_decoder_without_layers():
    with pytest.raises(ValueError, match="`num_decoder_layers` must be an int of at"):
        backbone_of("T5", num_decoder_layers=0)


@pytest.mark.any_backend
def test_arguments_of_layers_that_make_no_sense():
    with pytest.raises(ValueError, match="`causal` must be left out"):
        DisentangledSelfAttention(2, 4, causal=True)
    with pytest.raises(ValueError, match="`kernel_size` must be odd"):
        EmbeddingConvolution(2)
    assert Dropout(0.999995).kept_rate == 1 / 65536
