import pytest

from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.heads.span_boundary import SpanBoundaryHead
from keras_bertfam.models import SpanBertBackbone

# Exact counts of the encoder, with the pooler, and of the head without the table.
COUNTS = {
    "spanbert_base_en_cased": (108_310_272, 1_959_676),
    "spanbert_large_en_cased": (333_579_264, 3_388_668),
}


@pytest.mark.parametrize("name", SpanBertBackbone.presets_table)
def test_exact_counts(name):
    size = SpanBertBackbone.presets_table[name]
    head = SpanBoundaryHead(TokenEmbedding(size["vocabulary_size"], size["hidden_dim"]))
    head.build((None, None, size["hidden_dim"]))
    counts = (SpanBertBackbone.parameter_count(**size), head.count_params())
    assert counts == COUNTS[name]


def test_from_name():
    backbone = SpanBertBackbone.from_preset(
        "spanbert_base_en_cased", load_weights=False, num_layers=1, vocabulary_size=9
    )
    assert backbone.hidden_dim == 768 and backbone.activation == "gelu"
    assert not backbone.truncated_initializer and backbone.pooler is not None
