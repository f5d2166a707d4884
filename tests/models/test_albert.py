import pytest

from keras_bertfam.models import AlbertBackbone, EncoderBackbone

COUNTS = {
    "base": 11_683_584,
    "large": 17_683_968,
    "extra_large": 58_724_864,
    "extra_extra_large": 222_595_584,
}


@pytest.mark.parametrize("version", ["", "_v1"])
@pytest.mark.parametrize("size", COUNTS)
def test_parameter_counts(size, version):
    config = AlbertBackbone.presets_table[f"albert_{size}{version}_en_uncased"]
    assert AlbertBackbone.parameter_count(**config) == COUNTS[size]
    dropout = 0.1 if version and size != "extra_extra_large" else 0.0
    assert AlbertBackbone.parameter_count(**config) == COUNTS[size]
    family = AlbertBackbone.record.arguments
    assert {**family, **config}["dropout"] == dropout


def test_every_size_is_checked():
    assert len(AlbertBackbone.presets_table) == 2 * len(COUNTS)


def test_the_family_and_its_table_4():
    backbone = AlbertBackbone(30, 4, 2, 8, 16, max_sequence_length=8)
    config = backbone.get_config()
    expected = {"share": "all", "embedding_dim": 128, "dropout": 0.0, "pooler": True}
    assert {name: config[name] for name in expected} == expected
    assert config["attention_dropout"] == 0.0 and config["activation"] == "gelu_tanh"
    shared = {
        share: AlbertBackbone.parameter_count(30, 4, 2, 8, 16, share=share)
        for share in ("all", "attention", "ffn", "none")
    }
    assert shared["all"] < shared["attention"] < shared["none"]
    assert shared["none"] - shared["attention"] == shared["ffn"] - shared["all"]


def test_by_the_names_of_every_family():
    backbone = EncoderBackbone.from_preset(
        "albert_base_v1_en_uncased", load_weights=False, num_layers=1, vocabulary_size=9
    )
    assert type(backbone) is AlbertBackbone
    assert backbone.attention_dropout == 0.1
