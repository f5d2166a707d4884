"""XLM: its counts, and checkpoints of `transformers` both ways."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, tasks
from keras_bertfam.layers import BertTokenizer, mark_languages
from keras_bertfam.presets.checkpoints.source import CheckpointError
from keras_bertfam.presets.families.xlm import as_bert, as_xlm
from keras_bertfam.presets.tokenizer_presets import load_tokenizer
from tests.every_task import make, rows_of
from tests.from_transformers import max_difference, randomize

SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 64}
MASK = np.arange(12) < np.array([[12], [7], [1]])


@pytest.mark.any_backend
def test_counts():
    counts = {
        name: models.XlmBackbone.parameter_count(**size)
        for name, size in models.XlmBackbone.presets_table.items()
    }
    assert counts == {
        "xlm_mlm_tlm_1024_multi": 248_976_384,
        "xlm_mlm_1024_multi": 248_976_384,
        "xlm_mlm_2048_en": 667_088_896,
    }


def folder_of(path, kind="WithLMHeadModel", **settings):
    """A model of `transformers`, saved."""
    transformers = pytest.importorskip("transformers")
    config = transformers.XLMConfig(
        vocab_size=50,
        emb_dim=16,
        n_layers=2,
        n_heads=2,
        max_position_embeddings=24,
        **{"n_langs": 3, **settings},
    )
    theirs = randomize(getattr(transformers, f"XLM{kind}")(config), 0.1)
    theirs.save_pretrained(path)
    return theirs


def rows():
    rng = np.random.default_rng(0)
    ids = np.where(MASK, rng.integers(4, 50, (3, 12)), 2).astype("int32")
    languages = rng.integers(0, 3, (3, 12)).astype("int32")
    places = np.where(np.arange(12) < 5, np.arange(12), np.arange(12) - 5)
    return ids, languages, np.tile(places.astype("int32"), (3, 1))


@pytest.mark.slow
@pytest.mark.parametrize("languages", [3, 1])
def test_states_and_logits_are_those_of_transformers(languages, tmp_path):
    torch = pytest.importorskip("torch")

    theirs = folder_of(tmp_path, n_langs=languages)
    task = tasks.MaskedLM.from_preset(str(tmp_path))
    assert type(task.backbone) is models.XlmBackbone
    ids, language_ids, places = rows()
    x = {"token_ids": ids, "padding_mask": MASK, "position_ids": places}
    given = {
        "input_ids": torch.tensor(ids).long(),
        "attention_mask": torch.tensor(MASK).long(),
        "position_ids": torch.tensor(places).long(),
    }
    for told in {False, languages > 1}:
        if told:
            x["language_ids"] = language_ids
            given["langs"] = torch.tensor(language_ids).long()
        with torch.no_grad():
            expected = theirs(**given, output_hidden_states=True)
        states = task.backbone(x)["sequence_output"]
        assert max_difference(states, expected.hidden_states[-1], MASK) < 1e-5
        assert max_difference(task(x), expected.logits, MASK) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "kind"),
    [
        (tasks.MaskedLM, "WithLMHeadModel"),
        (tasks.TextClassifier, "ForSequenceClassification"),
        (tasks.TokenClassifier, "ForTokenClassification"),
    ],
)
def test_round_trip(cls, kind, tmp_path):
    folder_of(tmp_path / "theirs", kind)
    given = {} if cls is tasks.MaskedLM else {"num_classes": 2}
    task = cls.from_preset(str(tmp_path / "theirs"), **given)
    task.export_to_transformers(str(tmp_path / "again"))
    configs = [
        json.loads((tmp_path / name / "config.json").read_text())
        for name in ("theirs", "again")
    ]
    same = "model_type architectures n_langs vocab_size emb_dim gelu_activation".split()
    assert [configs[0][key] for key in same] == [configs[1][key] for key in same]
    again = cls.from_preset(str(tmp_path / "again"), **given)
    for one, other in zip(again.weights, task.weights, strict=True):
        assert keras.ops.all(keras.ops.equal(one, other))


def test_the_tokenizer_is_refused(tmp_path):
    """Ids of words that are split otherwise would be wrong without a word."""
    folder_of(tmp_path)
    (tmp_path / "vocab.json").write_text('{"<s>": 0, "</s>": 1, "a</w>": 2}')
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(CheckpointError, match="with `XLMTokenizer` of `transformers`"):
        load_tokenizer(str(tmp_path))
    with pytest.warns(UserWarning, match="by the rules of Moses"):
        task = tasks.MaskedLM.from_preset(str(tmp_path))
    assert task.preprocessor is None


@pytest.mark.any_backend
def test_languages():
    keras.utils.set_random_seed(0)
    backbone = models.XlmBackbone(50, **SIZES, num_languages=3, max_sequence_length=24)
    ids, languages, _ = rows()
    without, none, told = (
        keras.ops.convert_to_numpy(backbone({"token_ids": ids, **x})["sequence_output"])
        for x in (
            {},
            {"language_ids": np.full_like(ids, -1)},
            {"language_ids": languages},
        )
    )
    assert np.abs(without - none).max() < 1e-6
    assert np.abs(without - told).max() > 1e-3
    plain = models.BertBackbone(50, **SIZES)
    with pytest.raises(ValueError, match="`language_ids` must be left out"):
        plain({"token_ids": ids, "language_ids": languages})


# Those that call the embeddings in ways of their own, and one of each other kind.
OBJECTIVES = ("MaskedLMSentencePair", "MaskedPermutedLM", "ReplacedTokenDetection")
OBJECTIVES += ("CausalLM", "TextClassifier")


@pytest.mark.any_backend
@pytest.mark.parametrize("task", OBJECTIVES)
def test_training_without_languages_warns(task):
    """Else nothing would train their vectors, and nobody would know."""
    model = make(task, "bert", backbone={"num_languages": 2})
    x, _, _ = keras.utils.unpack_x_y_sample_weight(rows_of(task, model))
    model(x, training=False)
    with pytest.warns(UserWarning, match="no `language_ids`, so nothing trains"):
        model(x, training=True)


@pytest.mark.slow
@pytest.mark.any_backend
def test_training_on_translations(tmp_path):
    """Rows of pairs teach the languages' vectors, and prompts say their language."""
    words = [f"w{i}" for i in range(20)]
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    preprocessor = tasks.MaskedLMPreprocessor(tokenizer, 12, languages=["a", "b"])
    backbone = models.XlmBackbone(
        25, **SIZES, num_languages=2, max_sequence_length=12, dropout=0.0
    )
    task = tasks.MaskedLM(backbone, preprocessor)
    task.compile(optimizer=keras.optimizers.SGD(0.1))
    table = backbone.embeddings.language_table
    before = keras.ops.convert_to_numpy(table)
    documents = tf.data.Dataset.from_tensor_slices(
        mark_languages({"a": ["w1 w2 w3"] * 6, "b": ["w4 w5"] * 6})
    )
    task.fit(preprocessor.dataset(documents, 2), verbose=0)
    assert (np.abs(keras.ops.convert_to_numpy(table) - before).max(1) > 0).all()
    prompt = mark_languages({"b": ["w4 [MASK]"]}).numpy()[0].decode()
    answer = task.fill_mask(prompt, top_k=2)
    task.save_to_preset(str(tmp_path / "saved"))
    again = tasks.MaskedLM.from_preset(str(tmp_path / "saved"))
    assert again.preprocessor.languages == ["a", "b"]
    found = again.fill_mask(prompt, top_k=2)
    assert [token for token, _ in found[0]] == [token for token, _ in answer[0]]


CONFIG = {"emb_dim": 8, "max_position_embeddings": 9, "vocab_size": 5}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"n_words": 3}, "Expected 'n_words' to equal 'vocab_size'"),
        ({"n_langs": 0}, "'n_langs' to be an int of at least 1"),
        ({"use_lang_emb": "yes"}, "Expected 'use_lang_emb' to be true or false"),
    ],
)
def test_configs_that_are_wrong(config, message):
    with pytest.raises(ValueError, match=message):
        as_bert({**CONFIG, **config})


def test_what_transformers_has_no_keys_for():
    for change in (
        {"hidden_act": "silu"},
        {"intermediate_size": 9},
        {"num_languages": 1},
        {"max_position_embeddings": None},
    ):
        with pytest.raises(ValueError, match="XLM of `transformers` has gelu or relu"):
            as_xlm({**as_bert(CONFIG), **change})


@pytest.mark.any_backend
def test_a_student_knows_the_languages():
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    preprocessor = tasks.MaskedLMPreprocessor(tokenizer, 12, languages=["a", "b"])
    backbone = models.XlmBackbone(6, **SIZES, num_languages=2, max_sequence_length=12)
    teacher = tasks.MaskedLM(backbone, preprocessor)
    distiller = tasks.Distiller(tasks.MaskedLM.from_teacher(teacher), teacher)
    assert distiller.preprocessor.languages == ["a", "b"]
    tables = [
        keras.ops.convert_to_numpy(task.backbone.embeddings.language_table)
        for task in (teacher, distiller.student)
    ]
    np.testing.assert_array_equal(*tables)
    plain = tasks.MaskedLM.from_teacher(teacher, num_languages=0)
    assert plain.backbone.embeddings.language_table is None
