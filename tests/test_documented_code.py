"""What docstrings and README.md show runs, in a folder with the files they name.

README.md's on each backend. Published sizes have one layer.
"""

import ast
import functools
import importlib.util
import pathlib
import re
from fnmatch import fnmatch

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bertfam
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone
from keras_bertfam.presets import inspection
from keras_bertfam.presets.families import BACKBONES
from keras_bertfam.tasks import (
    MaskedDiffusionLM,
    MaskedDiffusionLMPreprocessor,
    MaskedLM,
    MaskedLMPreprocessor,
    TokenClassifier,
    TokenClassifierPreprocessor,
)
from tests import tiny_corpus
from tests.tiny_masked_lm import SPECIALS, WORDS
from tests.tiny_sentence_piece import train_sentence_piece

PACKAGE = pathlib.Path(keras_bertfam.__file__).parent
VOCABULARY = [*SPECIALS, ".", "!", "##s", *WORDS]
# What needs JAX. All others run on TensorFlow: tests of each module ask the others.
JAX_ONLY = "sharding.py:*"
# Beam's start, and searches beside training.
FOR_RELEASES = """
    corpora/preparing/word_counts.py:* *open_question_answering.py:*
    *knowledge_augmented_masked_lm.py:* *retrieval_augmented_generator.py:*
""".split()
# `make test` is to stay short; `make test-slow` runs it on TensorFlow.
pytestmark = (
    [pytest.mark.slow, pytest.mark.any_backend]
    if keras.backend.backend() == "tensorflow"
    else []
)
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def examples():
    for path in sorted(PACKAGE.rglob("*.py")):
        name, code = path.relative_to(PACKAGE).as_posix(), path.read_text("utf-8")
        if "```python" not in code:
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                text = ast.get_docstring(node) or ""
                owner = getattr(node, "name", "")
                for block in BLOCK.findall(text):
                    example = f"{name}:{owner}"
                    backend = "jax" if fnmatch(example, JAX_ONLY) else "tensorflow"
                    if backend == keras.backend.backend():
                        dear = any(fnmatch(example, each) for each in FOR_RELEASES)
                        marks = [pytest.mark.slow("release")] if dear else []
                        yield pytest.param(block, id=example, marks=marks)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A corpus, vocabularies, SST-2, own tables and a preset, all tiny."""
    folder = tmp_path_factory.mktemp("examples")
    rng = np.random.default_rng(0)
    sentences = [" ".join(rng.choice(WORDS, 9)) + " ." for _ in range(300)]
    text = "\n\n".join(" ".join(sentences[k : k + 5]) for k in range(0, 300, 5))
    for name in ("corpus", "papers"):
        (folder / name).mkdir()
        (folder / name / "a.txt").write_text(text)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    symbols = ["[CLS]", "[SEP]", "[MASK]"]  # ALBERT's, beside XLNet's
    piece = train_sentence_piece(sentences, symbols, vocab_size=60)
    (folder / "spiece.model").write_bytes(piece)
    (folder / "folder").mkdir()
    (folder / "folder" / "config.json").write_text('{"model_type": "bert"}')
    (folder / "folder" / "model.safetensors").write_bytes(b"damaged")
    rows = [f"{sentence}\t{k % 2}" for k, sentence in enumerate(sentences[:40])]
    (folder / "data" / "sst2").mkdir(parents=True)
    for split in ("train", "dev"):
        table = "\n".join(["sentence\tlabel", *rows])
        (folder / "data" / "sst2" / f"{split}.tsv").write_text(table)
    (folder / "entities.txt").write_text("\n".join(WORDS[:2]))
    line = '{"context": "a", "question": "b", "choices": ["c", "d"], "label": 1}\n'
    (folder / "mine.jsonl").write_text(line)
    names = ("negative", "positive")
    rows = [f'"{sentence}",{names[k % 2]}' for k, sentence in enumerate(sentences[:20])]
    (folder / "my.csv").write_text("\n".join(["review,sentiment", *rows]))
    line = '{"premise": "a", "hypothesis": "b", "label": "neutral"}\n'
    (folder / "pairs.jsonl").write_text(line)
    tokenizer = BertTokenizer(str(folder / "vocab.txt"), lowercase=True)
    sizes = {"num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    tiny_corpus.prepare(folder / "prepared", tokenizer, [text] * 60)
    backbone = BertBackbone(len(VOCABULARY), 2, max_sequence_length=64, **sizes)
    preprocessor = MaskedLMPreprocessor(tokenizer, sequence_length=32)
    MaskedLM(backbone, preprocessor).save_to_preset(str(folder / "my_bert"))
    diffused = MaskedDiffusionLMPreprocessor(tokenizer, sequence_length=32)
    diffusion = MaskedDiffusionLM(backbone, diffused)
    diffusion.save_to_preset(str(folder / "my_diffusion"))
    words = TokenClassifierPreprocessor(tokenizer, 32, label_names=["O", "B-a", "I-a"])
    tagger = TokenClassifier(backbone, preprocessor=words)
    tagger.save_to_preset(str(folder / "my_tagger"))
    return folder


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch):
    """Published sizes of one layer, which take less long to make and compile."""
    for cls in BACKBONES.values():
        sizes = cls.presets_table.items()
        small = {name: {**size, "num_layers": 1} for name, size in sizes}
        monkeypatch.setattr(cls, "presets_table", small)


@pytest.fixture(autouse=True)
def no_uploads(monkeypatch):
    """What is to be uploaded is there."""
    upload = functools.partial(inspection.check_preset, known_names=())
    monkeypatch.setattr(
        keras_bertfam.presets, "upload_preset", lambda uri, preset: upload(preset)
    )


@pytest.mark.filterwarnings("ignore:.*was loaded in part")  # heads are new
@pytest.mark.parametrize("code", [*examples()])
def test_docstring(code, files, monkeypatch):
    monkeypatch.chdir(files)
    if "load_weights=False" not in code:  # a download
        code = code.replace("bert_base_en_uncased", "my_bert")
    code = re.sub(r"epochs=\d+", "epochs=1", code)
    if "import transformers" in code:
        pytest.importorskip("transformers")
    names = {"keras": keras, "keras_bertfam": keras_bertfam, "np": np, "tf": tf}
    exec(code, names)


@pytest.mark.filterwarnings("ignore:.*was loaded in part")
def test_readme(files, monkeypatch):
    monkeypatch.chdir(files)
    text = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    text = text.replace("path/to/bert-base-uncased", "my_bert")
    text = re.sub(r"epochs=\d+", "epochs=1", text)
    first, *others = BLOCK.findall(text)
    first = first.replace("batch_size=64", "batch_size=4")
    left_out = ["import grpc"]  # needs a server
    if keras.backend.backend() != "tensorflow":  # which writes SavedModels
        left_out += ["tf.saved_model.load", "export("]
        first = first.replace("keras_bertfam.export.export_saved_model", "print")
    if importlib.util.find_spec("tf2onnx") is None:
        left_out.append("onnx")
    names = {}
    exec(first, names)
    for block in others:
        if not any(code in block for code in left_out):
            exec(block, dict(names))
