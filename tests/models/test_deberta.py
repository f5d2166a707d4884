"""DeBERTa: its attention by the definition, its sizes, and `transformers`."""

import warnings

import keras
import numpy as np
import pytest

from keras_bertfam import models, tasks
from keras_bertfam.layers.attention.disentangled import (
    DisentangledSelfAttention,
    RelativeTable,
    rows_by_distance,
)
from tests.from_transformers import convert, max_difference, randomize

COUNTS = {
    "deberta_base_en": 138_601_728,
    "deberta_large_en": 405_163_008,
    "deberta_extra_large_en": 757_804_032,
    "deberta_v2_extra_large_en": 884_593_152,
    "deberta_v2_extra_extra_large_en": 1_564_549_632,
    "deberta_v3_extra_small_en": 70_682_112,
    "deberta_v3_small_en": 141_304_320,
    "deberta_v3_base_en": 183_831_552,
    "deberta_v3_large_en": 434_012_160,
    "deberta_v3_base_multi": 278_218_752,
}
SIZES = {"vocabulary_size": 20, "num_layers": 2, "num_heads": 2, "hidden_dim": 8}
SIZES |= {"intermediate_dim": 12, "dropout": 0.0}


def numpy(x):
    return keras.ops.convert_to_numpy(x)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("cls", [models.DebertaBackbone, models.DebertaV2Backbone])
def test_parameter_counts_of_all_sizes(cls):
    found = {n: cls.parameter_count(**a) for n, a in cls.presets_table.items()}
    assert found == {n: count for n, count in COUNTS.items() if n in found}
    assert len(found) == {"DebertaBackbone": 3, "DebertaV2Backbone": 7}[cls.__name__]


def bucket(distance, num_buckets, max_distance):
    rows = rows_by_distance(2 * num_buckets, max_distance)
    return int(rows[distance + max_distance]) - num_buckets


@pytest.mark.any_backend
def test_log_buckets():
    distances = [0, 1, 127, 128, 129, 130, 140, 160, 192, 200, 255, 256, 300, 384]
    distances += [400, 500, 510, 511]
    expected = [0, 1, 127, 128, 129, 130, 137, 149, 166, 169, 192, 192, 207, 229]
    expected += [233, 254, 255, 255]
    assert [bucket(d, 256, 512) for d in distances] == expected
    assert [bucket(-d, 256, 512) for d in distances] == [-b for b in expected]
    few = [bucket(d, 8, 16) for d in range(16)]
    assert few == [0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7]
    # Of a row for each distance, and of the released code beyond the last one.
    assert [bucket(d, 4, 4) for d in (-4, -1, 0, 3)] == [-4, -1, 0, 3]
    assert bucket(-512, 256, 512) == -255


def test_scores_by_hand():
    """The third term has the distance of the code, and not of the paper."""
    layer = DisentangledSelfAttention(1, 2)
    table = RelativeTable(4, 2, 2)
    table.build()
    table.table.assign([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
    layer.build((None, None, 2))
    layer.qkv.kernel.assign(np.tile(np.eye(2), 3))
    x = np.array([[[1, 0], [0, 1], [1, 1]]], "float32")
    _, scores = layer(x, relative=table(length=3), return_scores=True)
    expected = [[0.409504, 0.180992, 0.409504], [0.249479, 0.375261, 0.375261]]
    expected += [[0.339425, 0.150018, 0.510557]]
    np.testing.assert_allclose(numpy(scores)[0, 0], expected, atol=1e-6)


@pytest.mark.parametrize("separate", [False, True])
def test_attention_by_its_definition(separate, seed):
    """Beside dense code that gathers a vector for each pair."""
    batch, length, heads, dim = 2, 9, 2, 3
    random = np.random.default_rng(seed)
    layer = DisentangledSelfAttention(heads, dim, separate=separate)
    table = RelativeTable(8, 6, 8, norm_epsilon=None if separate else 1e-7)
    layer.build((None, None, 6))
    table.build()
    for variable in (*layer.weights, *table.weights):
        variable.assign(random.normal(0, 0.5, variable.shape))
    x = random.normal(0, 1, (batch, length, 6)).astype("float32")
    mask = np.ones((batch, length), bool)
    mask[1, 6:] = False

    def project(x, *names):
        if not separate or "relative" not in names[0]:
            kernel, k = numpy(layer.qkv.kernel), ["query", "key", "value"]
            parts = [slice(6 * k.index(n), 6 * k.index(n) + 6) for n in names]
            bias = np.zeros(18) if separate else numpy(layer.qkv.bias)
            x = [x @ kernel[:, part] + bias[part] for part in parts]
        else:
            dense = [getattr(layer, n) for n in names]
            x = [
                x @ numpy(d.kernel) + (numpy(d.bias) if d.use_bias else 0)
                for d in dense
            ]
        return [each.reshape(*each.shape[:-1], heads, dim) for each in x]

    query, key, value = project(x, "query", "key", "value")
    if separate:
        query, value = query + numpy(layer.biases)[0], value + numpy(layer.biases)[1]
        names = "relative_query", "relative_key"
    else:
        names = "query", "key"
    vectors = numpy(table.table)
    if table.norm is not None:
        vectors = numpy(table.norm(vectors))
    rows = rows_by_distance(8, 8)
    apart = np.subtract.outer(np.arange(length), np.arange(length))
    rows = rows[np.clip(apart, -8, 7) + 8]
    of_query, of_key = (part[rows] for part in project(vectors, *names))
    scores = np.einsum("bihd,bjhd->bhij", query, key)
    scores += np.einsum("bihd,ijhd->bhij", query, of_key)
    scores += np.einsum("ijhd,bjhd->bhij", of_query, key)
    scores = scores / np.sqrt(3 * dim) - 1e9 * ~mask[:, None, None]
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    output = np.einsum("bhij,bjhd->bihd", scores, value).reshape(batch, length, 6)
    output = output @ numpy(layer.output_dense.kernel) + numpy(layer.output_dense.bias)
    relative = table(length=length)
    found = numpy(layer(x, relative=relative, attention_mask=mask))
    np.testing.assert_allclose(found, output, atol=1e-5)
    # At some positions, also where queries come from elsewhere.
    at = np.array([[8, 0, 3], [2, 5, 5]], "int32")
    wanted = np.take_along_axis(output, at[..., None], 1)
    some = layer(x, relative=relative, attention_mask=mask, positions=at)
    np.testing.assert_allclose(numpy(some), wanted, atol=1e-5)
    taken = np.take_along_axis(x, at[..., None], 1)
    some = layer(taken, relative, mask, memory=x, places=at)
    np.testing.assert_allclose(numpy(some), wanted, atol=1e-5)


@pytest.mark.parametrize("version", ["", "V2"])
def test_rows_longer_than_any_distance(version):
    """`transformers` takes row 0 there, which the original never does."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tests.conformance.test_hf_round_trips import CONFIGS

    config = getattr(transformers, f"Deberta{version}Config")
    theirs = getattr(transformers, f"Deberta{version}Model")
    theirs = randomize(theirs(config(**CONFIGS[f"Deberta{version}"])), 0.3)
    if version:
        with torch.no_grad():
            table = theirs.encoder.rel_embeddings.weight
            table[0] = table[1]
    ids = np.random.default_rng(0).integers(3, 20, (2, 30)).astype("int32")
    mask = np.ones((2, 30), bool)
    mask[1, 19:] = False
    ours = convert(models.Backbone, theirs)
    with torch.no_grad():
        states = theirs(torch.tensor(ids).long(), torch.tensor(mask).long())
    found = ours({"token_ids": ids, "padding_mask": mask})["sequence_output"]
    assert max_difference(found, states.last_hidden_state, mask) < 1e-5


def test_sequences_of_a_packed_row_know_nothing_of_each_other():
    backbone = models.DebertaV2Backbone(**SIZES, convolution=3)
    for variable in backbone.weights:
        values = np.random.default_rng(0).normal(0, 0.5, variable.shape)
        variable.assign(values)
    alone = [backbone({"token_ids": np.array([row])}) for row in ([3, 4, 5], [6, 7])]
    packed = backbone(
        {
            "token_ids": np.array([[3, 4, 5, 6, 7, 0]]),
            "sequence_ids": np.array([[0, 0, 0, 1, 1, 2]]),
            "padding_mask": np.array([[1, 1, 1, 1, 1, 0]]),
        }
    )
    expected = np.concatenate([numpy(x["sequence_output"]) for x in alone], 1)
    found = numpy(packed["sequence_output"])[:, :5]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.any_backend
def test_what_excludes_each_other():
    for arguments, message in (
        ({"causal": True}, "`causal` must be left out with `disentangled`"),
        ({"norm_first": True}, "`norm_first` must be left out with `disentangled`"),
        ({"relative_buckets": 3}, "`relative_buckets` must be even"),
        ({"disentangled": "both"}, "`disentangled` must be one of"),
        ({"convolution": 2}, "`convolution` must be odd"),
        ({"attention_window": 4}, "`relative_buckets` must be"),
    ):
        with pytest.raises(ValueError, match=message):
            models.DebertaV2Backbone(**SIZES, **arguments)
    bert = models.BertBackbone(**SIZES)
    with pytest.raises(ValueError, match="`added_queries` must be `None`"):
        bert({"token_ids": np.array([[1]])}, added_queries=np.zeros((1, 1, 8)))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["Deberta", "DebertaV2"])
def test_a_student_of_all_layers_is_its_teacher(version):
    sizes = {"convolution": 3} if version == "DebertaV2" else {}
    teacher = getattr(models, f"{version}Backbone")(**SIZES, **sizes)
    task = tasks.MaskedLM(teacher, decoder_positions=6)
    rng = np.random.default_rng(0)
    for variable in task.trainable_variables:
        variable.assign(variable + 0.1 * rng.normal(size=variable.shape))
    student = tasks.MaskedLM.from_teacher(task, [0, 1], copy_transform=True)
    rows = {"token_ids": np.array([[1, 5, 6, 2]])}
    expected = numpy(teacher(rows)["sequence_output"])
    received = numpy(student.backbone(rows)["sequence_output"])
    np.testing.assert_allclose(received, expected, atol=1e-5)
    np.testing.assert_allclose(numpy(student(rows)), numpy(task(rows)), atol=1e-5)
    placed = getattr(models, f"{version}Backbone")(**SIZES, max_sequence_length=8)
    with pytest.raises(ValueError, match="files have one table for both"):
        tasks.MaskedLM(placed, decoder_positions=6)


@pytest.mark.slow
def test_the_enhanced_mask_decoder(tmp_path):
    """The last layer twice, beside that of `transformers`, which can take queries."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    safetensors = pytest.importorskip("safetensors.torch")
    from tests.conformance.test_hf_round_trips import CONFIGS

    config = transformers.DebertaV2Config(**CONFIGS["DebertaV2"])
    theirs = randomize(transformers.DebertaV2ForMaskedLM(config), 0.3)
    ids = np.random.default_rng(0).integers(3, 20, (2, 9)).astype("int32")
    mask = np.ones((2, 9), bool)
    mask[1, 5:] = False
    tokens, kept = torch.tensor(ids).long(), torch.tensor(mask).long()
    positions = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    encoder = theirs.deberta.encoder
    with torch.no_grad():
        states = theirs.deberta(tokens, kept, output_hidden_states=True).hidden_states
        queries = states[-2] + positions[:9]
        for _ in range(2):
            queries = encoder.layer[-1](
                states[-2],
                encoder.get_attention_mask(kept),
                query_states=queries,
                relative_pos=encoder.get_rel_pos(states[0]),
                rel_embeddings=encoder.get_rel_embedding(),
            )[0]
        logits = theirs.cls(queries)
    # As in the released files: the table, and the original's names of the head.
    theirs.save_pretrained(tmp_path / "theirs")
    file = tmp_path / "theirs" / "model.safetensors"
    tensors = safetensors.load_file(file)
    names = {
        "cls.predictions.bias": "lm_head.bias",
        "cls.predictions.transform.dense": "lm_head.dense",
        "cls.predictions.transform.LayerNorm": "lm_head.LayerNorm",
    }
    for name in [name for name in tensors if name.startswith("cls.")]:
        start = next(start for start in names if name.startswith(start))
        new = f"lm_predictions.{names[start]}{name.removeprefix(start)}"
        tensors[new] = tensors.pop(name)
    tensors["deberta.embeddings.position_embeddings.weight"] = positions
    safetensors.save_file(tensors, file, metadata={"format": "pt"})
    ours = tasks.MaskedLM.from_preset(str(tmp_path / "theirs"))
    assert ours.decoder_positions == 12
    x = {"token_ids": ids, "padding_mask": mask}
    assert max_difference(ours(x), logits, mask) < 1e-4
    at = np.array([[8, 0, 3], [2, 4, 4]], "int32")
    picked = logits[torch.arange(2)[:, None], torch.tensor(at).long()]
    assert max_difference(ours({**x, "mask_positions": at}), picked) < 1e-4
    # Without the decoder it is the model of `transformers`.
    with pytest.warns(UserWarning, match="left out: .*position_embeddings"):
        plain = tasks.MaskedLM.from_preset(
            str(tmp_path / "theirs"), decoder_positions=None
        )
    with torch.no_grad():
        assert max_difference(plain(x), theirs(tokens, kept).logits, mask) < 1e-4
    ours.save_to_preset(str(tmp_path / "ours"))
    again = tasks.MaskedLM.from_preset(str(tmp_path / "ours"))
    np.testing.assert_array_equal(numpy(again(x)), numpy(ours(x)))
    with pytest.warns(UserWarning, match="no enhanced mask decoder"):
        ours.export_to_transformers(tmp_path / "back")
    again = tasks.MaskedLM.from_preset(str(tmp_path / "back"))
    np.testing.assert_array_equal(numpy(again(x)), numpy(ours(x)))
    with pytest.raises(ValueError, match="at most decoder_positions=12"):
        ours({"token_ids": np.zeros((1, 13), "int32")})
    with pytest.raises(ValueError, match="`decoder_positions` must be `None`"):
        tasks.MaskedLM(models.BertBackbone(**SIZES), decoder_positions=12)


def discriminator(folder, spelling="classifier"):
    """Write files as version 3 has them; give the model, and its head's tensors."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tests.conformance.test_hf_round_trips import CONFIGS

    settings = {**CONFIGS["DebertaV2"], "conv_kernel_size": 0}
    config = transformers.DebertaV2Config(**settings)
    theirs = randomize(transformers.DebertaV2Model(config), 0.3)
    theirs.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    random = torch.Generator().manual_seed(1)
    shapes = {"dense": (8, 8), "LayerNorm": (8,), spelling: (1, 8)}
    head = {
        f"mask_predictions.{name}.{part}": torch.randn(
            shape if part == "weight" else shape[:1], generator=random
        )
        for name, shape in shapes.items()
        for part in ("weight", "bias")
    }
    tensors = {f"deberta.{name}": t for name, t in theirs.state_dict().items()}
    torch.save({**tensors, **head}, folder / "pytorch_model.bin")
    return theirs, {
        name.removeprefix("mask_predictions."): t for name, t in head.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("spelling", ["classifier", "classifer"])
def test_the_head_of_released_discriminators(spelling, tmp_path):
    torch = pytest.importorskip("torch")
    theirs, head = discriminator(tmp_path, spelling)
    ids = np.random.default_rng(0).integers(3, 20, (2, 9)).astype("int32")
    with torch.no_grad():
        states = theirs(torch.tensor(ids).long()).last_hidden_state
        states = torch.nn.functional.layer_norm(
            states[:, :1] + states,
            (8,),
            head["LayerNorm.weight"],
            head["LayerNorm.bias"],
            1e-7,
        )
        states = states @ head["dense.weight"].T + head["dense.bias"]
        states = torch.nn.functional.gelu(states)
        logits = states @ head[f"{spelling}.weight"].T + head[f"{spelling}.bias"]
    with pytest.warns(UserWarning, match="new: .*generator") as warned:
        ours = tasks.ReplacedTokenDetection.from_preset(str(tmp_path))
    said = str(warned[0].message)
    assert "left out" not in said and "head/" not in said.replace("generator_head/", "")
    assert ours.add_first_token and ours.sharing == "gradient_disentangled"
    found = ours({"token_ids": ids})["discriminator"]
    assert max_difference(found, logits[..., 0]) < 1e-4
    # Every tensor is written under its name, and read again.
    with pytest.warns(UserWarning, match="no head of DeBERTa that finds replaced"):
        ours.export_to_transformers(tmp_path / "back")
    again = tasks.ReplacedTokenDetection.from_preset(str(tmp_path / "back"))
    assert again.add_first_token and again.tie == "none"
    np.testing.assert_array_equal(
        numpy(again({"token_ids": ids})["discriminator"]), numpy(found)
    )
    # A head without the first token is told by the file.
    plain = tasks.ReplacedTokenDetection(
        ours.copy_discriminator(), add_first_token=False
    )
    with pytest.warns(UserWarning, match="no head of DeBERTa"):
        plain.export_to_transformers(tmp_path / "plain")
    assert not tasks.ReplacedTokenDetection.from_preset(
        str(tmp_path / "plain")
    ).add_first_token
    with pytest.warns(UserWarning, match="left out: .*mask_predictions"):
        models.Backbone.from_preset(str(tmp_path))


@pytest.mark.slow
def test_the_generator_beside_a_released_discriminator(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    theirs, _ = discriminator(tmp_path)
    config = {**theirs.config.to_dict(), "num_hidden_layers": 1}
    config = transformers.DebertaV2Config(**config)
    generator = randomize(transformers.DebertaV2ForMaskedLM(config), 0.3)
    tensors = {
        name.replace("cls.predictions.transform", "lm_predictions.lm_head").replace(
            "cls.predictions", "lm_predictions.lm_head"
        ): tensor
        for name, tensor in generator.state_dict().items()
        if "decoder" not in name
    }
    tensors["deberta.embeddings.position_embeddings.weight"] = torch.randn(12, 8)
    # What only sharing needs, and the table has in it.
    tensors["deberta.embeddings.word_embeddings._weight"] = torch.zeros(20, 8)
    torch.save(tensors, tmp_path / "pytorch_model.generator.bin")
    ours = tasks.ReplacedTokenDetection.from_preset(str(tmp_path))
    assert ours.generator.num_layers == 1 and ours.decoder_positions == 12
    ids = np.random.default_rng(0).integers(3, 20, (2, 9)).astype("int32")
    x = {"token_ids": ids, "mask_positions": np.array([[3, 0], [8, 2]], "int32")}
    expected = numpy(ours.masked_lm_logits(x))
    (tmp_path / "alone").mkdir()
    config.save_pretrained(tmp_path / "alone")
    torch.save(tensors, tmp_path / "alone" / "pytorch_model.bin")
    alone = tasks.MaskedLM.from_preset(str(tmp_path / "alone"))
    np.testing.assert_allclose(numpy(alone(x)), expected, atol=1e-5)
    for folder, save in (
        ("ours", ours.save_to_preset),
        ("back", ours.export_to_transformers),
    ):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`transformers` has no")
            save(str(tmp_path / folder))
        again = tasks.ReplacedTokenDetection.from_preset(str(tmp_path / folder))
        assert again.decoder_positions == 12
        np.testing.assert_allclose(
            numpy(again.masked_lm_logits(x)), expected, atol=1e-5
        )
    tensors["deberta.encoder.LayerNorm.weight"] = torch.ones(7)
    torch.save(tensors, tmp_path / "pytorch_model.generator.bin")
    with pytest.raises(ValueError, match="don't fit"):
        tasks.ReplacedTokenDetection.from_preset(str(tmp_path))


@pytest.mark.any_backend
def test_the_first_token_is_that_of_its_sequence():
    """Packed rows, all tokens and masked ones, are as the sequences alone."""
    for variant in ("electra", "electra_15"):
        backbone = models.DebertaV2Backbone(**SIZES)
        model = tasks.ReplacedTokenDetection(backbone, variant=variant)
        random = np.random.default_rng(0)
        for variable in model.weights:
            if "float" in variable.dtype:
                variable.assign(random.normal(0, 0.5, variable.shape))
        assert model.add_first_token
        packed = {
            "token_ids": np.array([[3, 4, 5, 6, 7]]),
            "sequence_ids": np.array([[0, 0, 0, 1, 1]]),
        }
        masks = {
            "mask_ids": np.zeros((1, 2), "int32"),
            "mask_weights": np.zeros((1, 2)),
        }
        at = {"mask_positions": np.array([[4, 2]]), **masks}
        found = numpy(model({**packed, **at})["discriminator"])[0]
        for row, place, ids in ((0, 1, [6, 7]), (1, 2, [3, 4, 5])):
            one = {name: part[:, :1] for name, part in masks.items()}
            x = {"token_ids": np.array([ids]), **one}
            x["mask_positions"] = np.array([[place]])
            alone = numpy(model(x)["discriminator"])[0]
            if variant == "electra":
                part = found[3:] if row == 0 else found[:3]
            else:
                part = found[row : row + 1]
            np.testing.assert_allclose(part, alone, atol=1e-5)
    with pytest.raises(ValueError, match="`add_first_token` must be"):
        tasks.ReplacedTokenDetection(
            models.DebertaV2Backbone(**SIZES),
            variant="replace_mlm",
            add_first_token=True,
        )


@pytest.mark.slow
def test_positions_of_the_decoder_begin_again_in_a_packed_row():
    backbone = models.DebertaV2Backbone(**SIZES, max_sequence_length=None)
    model = tasks.MaskedLM(backbone, decoder_positions=6)
    for variable in model.weights:
        variable.assign(np.random.default_rng(0).normal(0, 0.5, variable.shape))
    alone = model({"token_ids": np.array([[6, 7]]), "mask_positions": np.array([[1]])})
    packed = {
        "token_ids": np.array([[3, 4, 5, 6, 7]]),
        "sequence_ids": np.array([[0, 0, 0, 1, 1]]),
        "mask_positions": np.array([[4]]),
    }
    np.testing.assert_allclose(numpy(model(packed)), numpy(alone), atol=1e-5)


@pytest.mark.any_backend
def test_kerashub_reads_and_is_read(tmp_path):
    keras_hub = pytest.importorskip("keras_hub")
    sizes = {k: v for k, v in SIZES.items() if k != "dropout"}
    theirs = keras_hub.models.DebertaV3Backbone(
        **sizes, max_sequence_length=12, bucket_size=4
    )
    for variable in theirs.weights:
        variable.assign(np.random.default_rng(0).normal(0, 0.5, variable.shape))
    theirs.save_to_preset(str(tmp_path / "theirs"))
    ours = models.Backbone.from_preset(str(tmp_path / "theirs"))
    assert type(ours) is models.DebertaV2Backbone
    x = {"token_ids": np.arange(3, 13)[None], "padding_mask": np.ones((1, 10), bool)}
    expected = numpy(theirs(x))
    np.testing.assert_allclose(numpy(ours(x)["sequence_output"]), expected, atol=1e-5)
    np.testing.assert_allclose(numpy(ours.to_keras_hub()(x)), expected, atol=1e-6)
