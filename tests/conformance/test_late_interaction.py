"""Models of late interaction of other libraries, in and out."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks, tokenizers
from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints import late_interaction
from keras_bertfam.retrieval.token_vectors import best_matches
from tests import every_task as every
from tests import small_bert_folder
from tests.checkout import ROOT

library = pytest.importorskip("sentence_transformers")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.slow,
    # Words that are none of a small vocabulary are named.
    pytest.mark.filterwarnings("ignore:.*Words that aren't skipped"),
    pytest.mark.filterwarnings("ignore:.*cut . of . queries"),
]

MARKERS = ["[unused0]", "[unused1]"]
WORDS = [*small_bert_folder.WORDS, *MARKERS, *"g.,"]
TEXTS = ["a b", "c . d e f g a b c d e f g a . b, c", "f, e", "."]
WHOLE, LENGTHS = "config_sentence_transformers.json", "sentence_bert_config.json"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    return small_bert_folder.write(folder, WORDS, special=MARKERS)


def write(base, folder, expansion=None):
    """Write a folder with their library; their model."""
    from sentence_transformers.base import modules
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    torch.manual_seed(1)
    ports = {"module_input_name": "token_embeddings"}
    parts = [
        modules.Transformer(
            str(base),
            document_length=14,
            query_length=None if expansion else 9,
            query_expansion=expansion,
        ),
        modules.Dense(
            8, 6, bias=False, activation_function=torch.nn.Identity(), **ports
        ),
        MultiVectorMask(skiplist_words=list(".,")),
        modules.Normalize(**ports),
    ]
    prompts = dict(zip(("query", "document"), MARKERS, strict=True))
    theirs = library.MultiVectorEncoder(modules=parts, device="cpu", prompts=prompts)
    theirs.save_pretrained(str(folder))
    return theirs


def read(path):
    return json.loads(path.read_text())


def change(path, **content):
    path.write_text(json.dumps({**(read(path) if path.exists() else {}), **content}))


def check(ours, theirs):
    queries, passages = theirs.encode_query(TEXTS), theirs.encode_document(TEXTS)
    for kind, expected in (("query", queries), ("passage", passages)):
        found = ours.encode(TEXTS, kind)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other.numpy(), atol=1e-5)
    expected = theirs.similarity(queries, passages).numpy()
    found = best_matches(ours.encode(TEXTS), ours.encode(TEXTS, "passage"))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    ((place, score), *_) = ours.rank(TEXTS[0], TEXTS)
    assert (place, score) == (expected[0].argmax(), pytest.approx(expected[0].max()))


@pytest.mark.parametrize(
    "attend", [pytest.param(None, marks=pytest.mark.any_backend), False, True]
)
def test_their_folder_and_ours(attend, base, tmp_path):
    expansion = {"strategy": "fixed", "length": 8, "attend": attend}
    theirs = write(base, tmp_path / "theirs", None if attend is None else expansion)
    ours = tasks.LateInteraction.from_preset(str(tmp_path / "theirs"))
    assert (ours.projection_dim, ours.preprocessor.sequence_length) == (6, 14)
    check(ours, theirs)
    ours.export_to_sentence_transformers(str(tmp_path / "ours"))
    check(ours, library.MultiVectorEncoder(str(tmp_path / "ours"), device="cpu"))
    check(tasks.LateInteraction.from_preset(str(tmp_path / "ours")), theirs)


@pytest.mark.any_backend
def test_other_tasks_take_the_encoder_of_a_folder(base, tmp_path):
    write(base, tmp_path / "theirs")
    folder = str(tmp_path / "theirs")
    with pytest.warns(UserWarning, match="left out: sentence_projection.weight"):
        tasks.TextClassifier.from_preset(folder, num_classes=2)
    converted = str(tmp_path / "converted")
    command = [sys.executable, "-m", "keras_bertfam", "convert", folder, converted]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, timeout=300)
    ours = tasks.LateInteraction.from_preset(converted)
    theirs = tasks.LateInteraction.from_preset(folder)
    assert ours.rank(TEXTS[0], TEXTS) == theirs.rank(TEXTS[0], TEXTS)


@pytest.mark.any_backend
@pytest.mark.parametrize("family", ["roberta", "xlm-roberta"])
def test_folders_of_other_families(family, tmp_path):
    """Of those whose positions are counted in another way, and other tokenizers."""
    documents = tf.data.Dataset.from_tensor_slices(every.TEXTS * 8)
    if family == "roberta":
        tokenizer = tokenizers.train_byte_pair(documents, 300, family=family)
    else:
        tokenizer = tokenizers.train_sentence_piece(documents, 60, family=family)
    backbone = every.backbone_of(family, tokenizer.vocabulary_size())
    preprocessor = tasks.LateInteractionPreprocessor(tokenizer, 24, 16)
    ours = tasks.LateInteraction(backbone, preprocessor, 8, compile=False)
    ours.export_to_sentence_transformers(str(tmp_path / "ours"))
    theirs = library.MultiVectorEncoder(str(tmp_path / "ours"), device="cpu")
    for kind, expected in (
        ("query", theirs.encode_query(every.TEXTS)),
        ("passage", theirs.encode_document(every.TEXTS)),
    ):
        for one, other in zip(ours.encode(every.TEXTS, kind), expected, strict=True):
            np.testing.assert_allclose(one, other.numpy(), atol=2e-5)


@pytest.mark.any_backend
def test_a_folder_of_pylate(base, tmp_path):
    folder = tmp_path / "theirs"
    write(base, folder)
    modules = read(folder / "modules.json")[:2]
    modules[0]["type"] = "sentence_transformers.models.Transformer"
    modules[1]["type"] = "pylate.models.Dense.Dense"
    (folder / "modules.json").write_text(json.dumps(modules))
    dense = read(folder / "1_Dense" / "config.json")
    dense = {key: dense[key] for key in dense if "module" not in key}
    (folder / "1_Dense" / "config.json").write_text(json.dumps(dense))
    lengths = {"max_seq_length": 13, "do_lower_case": False}
    (folder / LENGTHS).write_text(json.dumps(lengths))
    settings = {
        "prompts": {},
        "similarity_fn_name": "MaxSim",
        "model_type": "ColBERT",
        "query_prefix": f"{MARKERS[0]} ",
        "document_prefix": MARKERS[1],
        "query_length": 8,
        "document_length": 14,
        "attend_to_expansion_tokens": True,
    }
    change(folder / WHOLE, **settings)
    whole = read(folder / WHOLE)
    for more in (
        {},
        {"do_query_expansion": False},
        {"skiplist_words": ["g", "."]},
        {"skiplist_words": None},
        {"query_expansion": None},
        {"query_expansion": {"strategy": "fixed", "length": 6}},
    ):
        (folder / WHOLE).write_text(json.dumps({**whole, **more}))
        theirs = library.MultiVectorEncoder(str(folder), device="cpu")
        check(tasks.LateInteraction.from_preset(str(folder)), theirs)
    del whole["model_type"]  # as older ones
    (folder / WHOLE).write_text(json.dumps(whole))
    theirs = library.MultiVectorEncoder(str(folder), device="cpu")
    check(tasks.LateInteraction.from_preset(str(folder)), theirs)
    for wrong in (
        {"do_query_expansion": "false"},
        {"attend_to_expansion_tokens": 1},
        {"query_length": 0},
        {"query_prefix": 5},
    ):
        (folder / WHOLE).write_text(json.dumps({**whole, **wrong}))
        (key,) = wrong
        with pytest.raises(CheckpointError, match=f"'{key}'.*must be"):
            tasks.LateInteraction.from_preset(str(folder))


@pytest.mark.any_backend
def test_a_folder_of_colbert(base, tmp_path):
    from safetensors.torch import save_file

    folder = tmp_path / "theirs"
    shutil.copytree(base, folder)
    change(folder / "config.json", architectures=["HF_ColBERT"])
    bert = transformers.BertModel.from_pretrained(base).state_dict()
    tensors = {f"bert.{name}": tensor.contiguous() for name, tensor in bert.items()}
    tensors["linear.weight"] = torch.randn(6, 8)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    told = {"query_maxlen": 8, "doc_maxlen": 14, "similarity": "cosine", "dim": 6}
    for more in ({}, {"attend_to_mask_tokens": True}, {"mask_punctuation": False}):
        (folder / late_interaction.METADATA).write_text(json.dumps({**told, **more}))
        theirs = library.MultiVectorEncoder(str(folder), device="cpu")
        check(tasks.LateInteraction.from_preset(str(folder)), theirs)
    for key, value in (
        ("similarity", "l2"),
        ("query_token_id", 5),
        ("doc_token_id", ["a"]),
        ("query_maxlen", "8"),
        ("doc_maxlen", 0),
        ("mask_punctuation", "no"),
    ):
        wrong = json.dumps({**told, key: value})
        (folder / late_interaction.METADATA).write_text(wrong)
        with pytest.raises(CheckpointError, match=f"{key}.* must|must.* {key}"):
            tasks.LateInteraction.from_preset(str(folder))


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("file", "key", "values", "message"),
    [
        (LENGTHS, "query_length", [0, 3, "8", True], "'query_length'.*must be"),
        (LENGTHS, "document_length", [-1, 2.5], "'document_length'.*must be"),
        (
            LENGTHS,
            "query_expansion",
            [
                7,
                {"strategy": "min", "length": 8},
                {"strategy": "fixed"},
                {"strategy": "fixed", "length": 8, "token": "[SEP]"},
                {"strategy": "fixed", "length": 8, "attend": "yes"},
                {"strategy": "fixed", "length": 8, "odd": 1},
            ],
            "'query_(expansion|length)'.*must be",
        ),
        (WHOLE, "prompts", [3, {"query": 1}], "'prompts'.*must be"),
        (WHOLE, "prompts", [{"query": "a b"}], "`query_marker` must be"),
        ("2_MultiVectorMask/config.json", "skiplist_words", ["ab", [1]], "must be"),
        ("2_MultiVectorMask/config.json", "skiplist_tasks", [["query"]], "must be"),
        ("2_MultiVectorMask/config.json", "keep_only_token_ids", [[3]], "must be"),
        ("1_Dense/config.json", "bias", [True], "must be"),
        ("1_Dense/config.json", "module_input_name", ["sentence_embedding"], "must be"),
        ("3_Normalize/config.json", "module_input_name", ["odd"], "must be"),
        ("3_Normalize/config.json", "odd", [1], "no other keys"),
    ],
)
def test_keys_of_a_folder(file, key, values, message, base, tmp_path):
    write(base, tmp_path / "theirs")
    for value in values:
        shutil.copytree(tmp_path / "theirs", tmp_path / "again", dirs_exist_ok=True)
        change(tmp_path / "again" / file, **{key: value})
        with pytest.raises(ValueError, match=message):
            tasks.LateInteraction.from_preset(str(tmp_path / "again"))
