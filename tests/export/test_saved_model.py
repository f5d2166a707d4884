import json
import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.export import export_saved_model
from keras_bertfam.export.saved_model import WARMUP_FILE
from keras_bertfam.layers import mark_languages
from keras_bertfam.models import EncoderBackbone, XlmBackbone
from keras_bertfam.tasks import MaskedLM, MaskedLMPreprocessor
from tests.checkout import ROOT

TEXTS = ["the cat [MASK] on the [MASK] .", "a [MASK]", "no mask here"]

# Imports nothing but TensorFlow, as a server does.
CLIENT = """
import json, sys
import tensorflow as tf
import tensorflow_text
model = tf.saved_model.load(sys.argv[1])
texts = json.loads(sys.argv[2])
answers = model.signatures["serving_default"](text=tf.constant(texts))
assert not {"keras_hub", "keras_bertfam"} & set(sys.modules)
print(json.dumps({
    "tokens": [[[t.decode() for t in k] for k in row]
               for row in answers["predicted_tokens"].numpy().tolist()],
    "probabilities": answers["probabilities"].numpy().tolist(),
    "positions": answers["mask_positions"].numpy().tolist(),
}))
"""


def in_a_fresh_process(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=os.path.dirname(__file__),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def model():
    from keras_bertfam.layers import BertTokenizer
    from keras_bertfam.models import BertBackbone
    from keras_bertfam.tasks import MaskedLMPreprocessor

    words = "the a cat dog sat ran on mat no mask here .".split()
    tokenizer = BertTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words], lowercase=True
    )
    keras.utils.set_random_seed(3)
    backbone = BertBackbone(17, 2, 2, 16, 24, max_sequence_length=16)
    return MaskedLM(backbone, MaskedLMPreprocessor(tokenizer, sequence_length=16))


@pytest.fixture(scope="module")
def served(model, tmp_path_factory):
    # Under JAX and PyTorch this goes through a process with TensorFlow.
    path = str(tmp_path_factory.mktemp("served") / "1")
    assert export_saved_model(model, path, top_k=3) == path
    return path


def readable(answers):
    """Gives the answers of a signature as `CLIENT` prints them."""
    tokens = np.char.decode(answers["predicted_tokens"].numpy().astype("S"))
    values = answers["probabilities"].numpy()
    return {"tokens": tokens.tolist(), "probabilities": values.tolist()}


def check_answers(answers, expected):
    """Compares padded answers with those of `fill_mask`, one list for each text."""
    for row, slots in enumerate(expected):
        for slot in range(len(answers["tokens"][row])):
            tokens = answers["tokens"][row][slot]
            probabilities = answers["probabilities"][row][slot]
            if slot < len(slots):
                assert tokens == [token for token, _ in slots[slot]]
                np.testing.assert_allclose(
                    probabilities, [p for _, p in slots[slot]], atol=1e-5
                )
            else:
                assert tokens == ["", "", ""] and probabilities == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_process_with_only_tensorflow_gives_the_same_answer(model, served):
    answers = in_a_fresh_process(CLIENT, served, json.dumps(TEXTS))
    assert answers["positions"] == [[3, 6], [2, -1], [-1, -1]]
    check_answers(answers, [*model.fill_mask(TEXTS[:2], top_k=3), []])


@pytest.mark.slow
@pytest.mark.any_backend
def test_byte_level_bpe_is_served_as_well(tmp_path):
    from keras_hub.tokenizers import RobertaTokenizer

    from keras_bertfam.models import RobertaBackbone
    from keras_bertfam.tasks import MaskedLMPreprocessor

    tokens = "<s> <pad> </s> <mask> s e a c l m . Ġ se sea Ġsea".split()
    tokenizer = RobertaTokenizer(
        {token: index for index, token in enumerate(tokens)},
        ["s e", "se a", "Ġ sea"],
    )
    backbone = RobertaBackbone(len(tokens), 2, 2, 16, 24, max_sequence_length=16)
    model = MaskedLM(backbone, MaskedLMPreprocessor(tokenizer, sequence_length=16))
    path = export_saved_model(model, str(tmp_path / "1"), top_k=3)
    # Words that the tokenizer has not met, and cached, before the export.
    texts = ["sea<mask>. calm <mask>", "mace ales seam<mask>", "no"]
    answers = in_a_fresh_process(CLIENT, path, json.dumps(texts))
    assert answers["positions"] == [[2, 9], [12, -1], [-1, -1]]
    check_answers(answers, [*model.fill_mask(texts[:2], top_k=3), []])


@pytest.mark.slow
def test_signatures(model, served):
    loaded = tf.saved_model.load(served)
    assert set(loaded.signatures) == {"serving_default", "token_ids"}
    inputs = model.preprocessor.encode(TEXTS)
    by_text = loaded.signatures["serving_default"](text=tf.constant(TEXTS))
    by_ids = loaded.signatures["token_ids"](
        token_ids=tf.constant(np.asarray(inputs["token_ids"]), tf.int32)
    )
    assert set(by_text) == {
        "mask_positions",
        "predicted_ids",
        "predicted_tokens",
        "probabilities",
    }
    for name, value in by_text.items():
        np.testing.assert_array_equal(value.numpy(), by_ids[name].numpy())
    # Any batch, any length, also without a mask or a row.
    for texts in (["the"], TEXTS * 3, ["a " * 40], [""], []):
        answers = loaded.signatures["serving_default"](
            text=tf.constant(texts, tf.string)
        )
        assert answers["probabilities"].shape[0] == len(texts)


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_saved_model_cli(served):
    command = [sys.executable, "-m", "tensorflow.python.tools.saved_model_cli"]
    options = ["--dir", served, "--tag_set", "serve"]
    options += ["--signature_def", "serving_default"]
    shown = subprocess.run(
        [*command, "show", *options], capture_output=True, text=True, check=True
    )
    assert "inputs['text']" in shown.stdout
    assert "outputs['probabilities']" in shown.stdout
    guide = (ROOT / "docs/serving.md").read_text()
    (registered,) = re.findall(r'python -c "(.*saved_model_cli.*)"', guide)
    run = [sys.executable, "-c", registered, "run", *options]
    run += ["--input_exprs", "text=['a [MASK]']"]
    ran = subprocess.run(run, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "Result for output key probabilities" in ran.stdout


@pytest.mark.slow
def test_warmup_requests(served):
    prediction_log_pb2 = pytest.importorskip(
        "tensorflow_serving.apis.prediction_log_pb2"
    )
    file = os.path.join(served, WARMUP_FILE)
    logs = [
        prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request
        for record in tf.data.TFRecordDataset(file)
    ]
    signatures = tf.saved_model.load(served).signatures
    assert [log.model_spec.signature_name for log in logs] == list(signatures)
    for log in logs:
        inputs = {k: tf.constant(tf.make_ndarray(v)) for k, v in log.inputs.items()}
        signatures[log.model_spec.signature_name](**inputs)


@pytest.mark.slow
def test_warmup_file_is_there(served):
    records = list(tf.data.TFRecordDataset(os.path.join(served, WARMUP_FILE)))
    assert len(records) == 2
    assert b"serving_default" in records[0].numpy() and b"[MASK]" in records[0].numpy()


def test_the_optimizer_is_not_exported(served):
    size = os.path.getsize(
        os.path.join(served, "variables", "variables.data-00000-of-00001")
    )
    assert (
        size
        < 1.2
        * 4
        * EncoderBackbone.parameter_count(
            17, 2, 2, 16, 24, max_sequence_length=16, num_segments=2, pooler=True
        )
        + 4096
    )


@pytest.mark.slow
@pytest.mark.any_backend  # TensorFlow reads the preset
def test_from_a_preset_directory(model, tmp_path):
    model.save_to_preset(str(tmp_path / "preset"))
    path = export_saved_model(str(tmp_path / "preset"), str(tmp_path / "1"))
    answers = tf.saved_model.load(path).signatures["serving_default"](
        text=tf.constant(TEXTS[:1])
    )
    expected = [token for token, _ in model.fill_mask(TEXTS[0])[0]]
    assert [t.decode() for t in answers["predicted_tokens"].numpy()[0, 0]] == expected


@pytest.mark.slow
@pytest.mark.any_backend  # TensorFlow reads the preset
def test_rows_to_spare_are_never_answered(model, tmp_path):
    backbone = type(model.backbone)(24, 1, 2, 16, 24, max_sequence_length=16)
    larger = MaskedLM(backbone, model.preprocessor)
    larger.head.bias.assign(np.arange(24.0))
    path = export_saved_model(larger, str(tmp_path / "1"), top_k=2)
    serve = tf.saved_model.load(path).signatures["serving_default"]
    answers = serve(text=tf.constant(TEXTS[:1]))
    expected = larger.fill_mask(TEXTS[0], top_k=2)[0]
    received = answers["predicted_tokens"].numpy()[0, 0]
    assert [token.decode() for token in received] == [token for token, _ in expected]
    np.testing.assert_allclose(
        answers["probabilities"].numpy()[0, 0], [p for _, p in expected], atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.any_backend  # TensorFlow reads the preset
def test_a_backbone_with_a_tokenizer(model, tmp_path):
    model.backbone.save_to_preset(str(tmp_path / "preset"))
    model.preprocessor.tokenizer.save_to_preset(str(tmp_path / "preset"))
    path = export_saved_model(str(tmp_path / "preset"), str(tmp_path / "1"))
    serve = tf.saved_model.load(path).signatures["serving_default"]
    # No more tokens than the backbone has positions.
    assert serve(text=["the cat " * 20])["sequence_output"].shape == (1, 16, 16)
    outputs = serve(text=tf.constant(["the cat"]))
    inputs = model.preprocessor.encode(["the cat"])
    expected = model.backbone({k: np.asarray(v) for k, v in inputs.items()})
    assert set(outputs) == {"sequence_output", "pooled_output", "padding_mask"}
    np.testing.assert_allclose(
        outputs["sequence_output"].numpy(),
        ops.convert_to_numpy(expected["sequence_output"]),
        atol=1e-5,
    )


@pytest.mark.slow
@pytest.mark.any_backend  # TensorFlow reads the preset
def test_languages_and_translations(model, tmp_path):
    """Marked prompts are answered as by `fill_mask`, rows of ids by their languages."""
    keras.utils.set_random_seed(4)
    backbone = XlmBackbone(17, 1, 2, 16, 24, max_sequence_length=16, num_languages=2)
    for name in ("language_table", "position_table"):
        table = getattr(backbone.embeddings, name)
        table.assign(50 * ops.convert_to_numpy(table))  # so that answers differ by them
    preprocessor = MaskedLMPreprocessor(
        model.preprocessor.tokenizer, 16, languages=["en", "is"]
    )
    task = MaskedLM(backbone, preprocessor)
    path = export_saved_model(task, str(tmp_path / "1"), top_k=3)
    signatures = tf.saved_model.load(path).signatures
    marked = [
        mark_languages({"en": "the [MASK] sat"}),
        mark_languages({"is": "the [MASK] sat"}),
        mark_languages({"en": "the cat sat", "is": "a [MASK] on the mat"}),
    ]
    texts = ["the [MASK] sat", *(text.numpy().decode() for text in marked)]
    expected = task.fill_mask(texts, top_k=3)
    answers = signatures["serving_default"](text=tf.constant(texts))
    rows = preprocessor.encode(texts[:3])
    names = ("token_ids", "language_ids")
    by_ids = signatures["token_ids"](**{name: rows[name] for name in names})
    for received, count in ((answers, 4), (by_ids, 3)):
        check_answers(readable(received), expected[:count])
    # The marks matter: of no two languages the answers are the same.
    sure = answers["probabilities"].numpy()[:3, 0, 0]
    assert np.abs(np.diff(sure)).min() > 1e-4


@pytest.mark.any_backend  # TensorFlow reads the preset
def test_errors_leave_nothing_behind(model, tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(ValueError, match="must not exist yet"):
        export_saved_model(model, str(tmp_path / "there"))
    with pytest.raises((ValueError, RuntimeError), match="preprocessor"):
        export_saved_model(MaskedLM(model.backbone), str(tmp_path / "1"))
    with pytest.raises((ValueError, RuntimeError), match=r"`top_k`.*\[1, 17\]"):
        export_saved_model(model, str(tmp_path / "1"), top_k=18)
    assert [p.name for p in tmp_path.iterdir()] == ["there"]
