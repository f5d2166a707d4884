"""Exact parameter counts of the published configurations."""

import keras
import pytest

from keras_bertfam.layers import MaskedLMHead
from keras_bertfam.models import BertBackbone, EncoderBackbone, RobertaBackbone

MINIATURES = {
    2: (4_385_920, 9_591_040, 22_458_880, 38_603_520),
    4: (4_782_464, 11_170_560, 28_763_648, 52_779_264),
    6: (5_179_008, 12_750_080, 35_068_416, 66_955_008),
    8: (5_575_552, 14_329_600, 41_373_184, 81_130_752),
    10: (5_972_096, 15_909_120, 47_677_952, 95_306_496),
    12: (6_368_640, 17_488_640, 53_982_720, 109_482_240),
}
BERT = {
    "bert_tiny_en_uncased": 4_385_920,
    "bert_mini_en_uncased": 11_170_560,
    "bert_small_en_uncased": 28_763_648,
    "bert_medium_en_uncased": 41_373_184,
    "bert_base_en_uncased": 109_482_240,
    "bert_base_en": 108_310_272,
    "bert_base_zh": 102_267_648,
    "bert_base_multi": 177_853_440,
    "bert_base_multi_uncased": 167_356_416,
    "bert_large_en_uncased": 335_141_888,
    "bert_large_en": 333_579_264,
    "bert_large_en_uncased_whole_word": 335_141_888,
    "bert_large_en_whole_word": 333_579_264,
    "macbert_base_zh": 102_267_648,
    "macbert_large_zh": 325_522_432,
    **{
        f"bert_l{layers}_h{width}_en_uncased": count
        for layers, counts in MINIATURES.items()
        for width, count in zip((128, 256, 512, 768), counts, strict=True)
    },
}
ROBERTA = {"roberta_base_en": 124_054_272, "roberta_large_en": 354_309_120}
# ALBERT, table 4 (with pooler): rows of embedding width and what is shared.
ALBERT = {
    (768, "all"): 31_114_752,
    (768, "attention"): 83_078_400,
    (768, "ffn"): 57_117_696,
    (768, "none"): 109_081_344,
    (128, "all"): 11_683_584,
    (128, "attention"): 63_647_232,
    (128, "ffn"): 37_686_528,
    (128, "none"): 89_650_176,
}


def count(cls, name, **kwargs):
    return cls.parameter_count(**{**cls.presets_table[name], **kwargs})


@pytest.mark.slow
@pytest.mark.parametrize("name", BERT)
def test_bert(name):
    assert count(BertBackbone, name) == BERT[name]


def test_every_bert_size_is_checked():
    # bert_base_zh has no published count; its vocabulary has 21,128 tokens.
    assert set(BertBackbone.presets_table) == {*BERT, "bert_base_zh"}


@pytest.mark.parametrize("name", ROBERTA)
def test_roberta(name):
    assert count(RobertaBackbone, name) == ROBERTA[name]


@pytest.mark.parametrize(("embedding_dim", "share"), ALBERT)
def test_albert_table_4(embedding_dim, share):
    received = EncoderBackbone.parameter_count(
        vocabulary_size=30000,
        num_layers=12,
        num_heads=12,
        hidden_dim=768,
        intermediate_dim=3072,
        embedding_dim=embedding_dim,
        num_segments=2,
        share=share,
        pooler=True,
    )
    assert received == ALBERT[embedding_dim, share]


def test_groups_share_separately():
    def block_weights(groups):
        received = EncoderBackbone.parameter_count(
            10, 6, 2, 8, 16, share="all", num_groups=groups
        )
        return received - EncoderBackbone.parameter_count(10, 1, 2, 8, 16)

    block = 4 * 8 * 8 + 9 * 8 + 2 * 8 * 16 + 16
    assert [block_weights(groups) for groups in (1, 2, 3, 6)] == [
        0,
        block,
        2 * block,
        5 * block,
    ]


def test_masked_lm_head():
    # dense + norm + bias; the table is the backbone's.
    backbone = EncoderBackbone(50, 1, 2, 8, 16, embedding_dim=4)
    head = MaskedLMHead(backbone.token_embedding)
    head.build((None, None, 8))
    tied = backbone.token_embedding.count_params()
    assert head.count_params() - tied == 8 * 4 + 4 + 2 * 4 + 50


def test_counting_allocates_nothing():
    # 13 billion parameters would not fit into the memory of a test machine.
    assert EncoderBackbone.parameter_count(10, 4, 64, 16384, 65536) > 12e9
    # Keras gives memory to variables that wait for it when a scope ends.
    with keras.StatelessScope():
        pass
